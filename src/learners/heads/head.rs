use burn::module::{Module, ModuleDisplay};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use fewshot_kernels::split_at;
use serde_json::Value;

use super::{LogitFormula, NoFormula, accuracies, cross_entropy};
use crate::episode::one_hot;

/// Labelled embeddings, from which a head learns one task or several.
#[derive(Clone, Debug)]
pub struct EmbeddedSupport<B: Backend> {
    /// Embeddings `[t, n, d]`.
    pub embeddings: Tensor<B, 3>,
    /// Classes `[t, n]`, from 0 to `ways - 1`.
    pub labels: Tensor<B, 2, Int>,
    /// Number of classes of each task.
    pub ways: usize,
}

impl<B: Backend> EmbeddedSupport<B> {
    /// Support of embeddings `[t, n, d]` with labels `[t, n]` from 0 to `ways - 1`.
    ///
    /// # Panics
    /// When there is not one label for each embedding.
    pub fn new(embeddings: Tensor<B, 3>, labels: Tensor<B, 2, Int>, ways: usize) -> Self {
        let [tasks, examples, _] = embeddings.dims();
        assert_eq!(labels.dims(), [tasks, examples], "one label for each embedding");
        Self { embeddings, labels, ways }
    }

    /// Mean embedding of each class, `[t, ways, d]`.
    pub fn prototypes(&self) -> Tensor<B, 3> {
        fewshot_kernels::prototypes(self.embeddings.clone(), self.labels.clone(), self.ways)
    }

    /// 1 at the class of each example and 0 elsewhere, `[t, n, ways]`.
    pub fn one_hot(&self) -> Tensor<B, 3> {
        one_hot(self.labels.clone(), self.ways)
    }

    /// The same labels on `embeddings` of the same examples.
    pub fn with_embeddings(&self, embeddings: Tensor<B, 3>) -> Self {
        Self::new(embeddings, self.labels.clone(), self.ways)
    }
}

/// The embeddings of episodes as an encoder gives them: in each task those of the support, then those of the
/// queries.
#[derive(Clone, Debug)]
pub struct EmbeddedEpisode<B: Backend> {
    /// Embeddings `[t, n + q, d]`.
    pub embeddings: Tensor<B, 3>,
    /// Classes of the support `[t, n]` and of the queries `[t, q]`, from 0 to `ways - 1`.
    pub labels: [Tensor<B, 2, Int>; 2],
    /// Number of classes of each task.
    pub ways: usize,
}

impl<B: Backend> EmbeddedEpisode<B> {
    /// Episodes of embeddings `[t, n + q, d]` with labels `[t, n]` and `[t, q]` from 0 to `ways - 1`.
    ///
    /// # Panics
    /// When there is not one label for each embedding, or there is no support or no query.
    pub fn new(embeddings: Tensor<B, 3>, labels: [Tensor<B, 2, Int>; 2], ways: usize) -> Self {
        let [tasks, examples, _] = embeddings.dims();
        let [of_support, of_queries] = labels.each_ref().map(Tensor::dims);
        assert!(
            [of_support[0], of_queries[0]] == [tasks; 2]
                && of_support[1] + of_queries[1] == examples,
            "one label for each embedding"
        );
        assert!(
            of_support[1] > 0 && of_queries[1] > 0,
            "an episode without support or without queries"
        );
        Self { embeddings, labels, ways }
    }

    /// The support, the embeddings of the queries `[t, q, d]`, and their classes `[t, q]`.
    pub fn parts(self) -> (EmbeddedSupport<B>, Tensor<B, 3>, Tensor<B, 2, Int>) {
        let [labels, wanted] = self.labels;
        let [support, queries] = split_at(self.embeddings, labels.dims()[1]);
        (EmbeddedSupport::new(support, labels, self.ways), queries, wanted)
    }
}

/// A classifier over embeddings.
///
/// An *inductive* one judges each query by itself. A [*transductive*](Self::transductive) one learns
/// from the queries of a task, too: what it predicts for a query depends on which others are given
/// with it, so all queries of a task belong in one call.
///
/// On top of an encoder it is a learner: [`EmbeddingLearner`](crate::learners::EmbeddingLearner).
pub trait Head<B: Backend>: Module<B> + ModuleDisplay {
    /// The method, unless [`name`](Self::name) says otherwise.
    const NAME: &'static str;

    /// True if [`train_loss`](Self::train_loss) may draw random numbers of the backend.
    const DRAWS: bool = false;

    /// Learns the tasks of `support`.
    ///
    /// # Panics
    /// Here or when queries are judged: if a setting is out of the range that its field names, or
    /// embeddings do not have the features that the head was made for.
    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B>;

    /// The logits of the one task of `support` as a formula of a query.
    ///
    /// # Errors
    /// For a head that is none, or none with its settings.
    ///
    /// # Panics
    /// The reasons of [`fit`](Self::fit), and when there are several tasks.
    fn formula(&self, support: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        let _ = support;
        Err(NoFormula("its logits are no formula of a query"))
    }

    /// Logits `[t, q, ways]` of all queries `[t, q, d]` of the tasks of `support`.
    fn logits(&self, support: EmbeddedSupport<B>, queries: Tensor<B, 3>) -> Tensor<B, 3> {
        self.fit(support).logits(queries)
    }

    /// Logits `[t, q, ways]` of queries `[t, q, d]` in meta-training: those of [`fit`](Self::fit) but for a
    /// head with batch-norm, which normalises by the task and moves its running averages.
    fn train_logits(&self, support: EmbeddedSupport<B>, queries: Tensor<B, 3>) -> Tensor<B, 3> {
        self.logits(support, queries)
    }

    /// The loss that meta-training minimises: by default the mean cross-entropy over all queries,
    /// `[1]`.
    ///
    /// # Shapes
    /// - `logits`: `[t, q, ways]`
    /// - `labels`: `[t, q]`
    fn loss(&self, logits: Tensor<B, 3>, labels: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        cross_entropy(logits, labels)
    }

    /// The share of queries classified correctly in meta-training, and the loss that is minimised,
    /// `[1]` each. The loss is the [`loss`](Self::loss) of [`train_logits`](Self::train_logits),
    /// except for a head that fuses the two or whose paper adds terms that do not follow from logits.
    fn train_loss(&self, episode: EmbeddedEpisode<B>) -> (Tensor<B, 1>, Tensor<B, 1>) {
        score_and_loss(self, episode)
    }

    /// True if logits of a query depend on the other queries of its task.
    fn transductive(&self) -> bool {
        false
    }

    /// Name of the method, for reports.
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// Its settings, as a JSON object, for reports and to tell whether a checkpoint fits.
    fn settings(&self) -> Value;

    /// The learner that it is on an encoder, as [`Learner::architecture`](crate::learners::Learner::architecture).
    fn architecture(&self, encoder: &str) -> String {
        format!("{} {} on {encoder}", self.name(), self.settings())
    }
}

/// [`Head::train_loss`], where the loss follows from the logits.
pub(super) fn score_and_loss<B: Backend>(
    head: &impl Head<B>,
    episode: EmbeddedEpisode<B>,
) -> (Tensor<B, 1>, Tensor<B, 1>) {
    let (support, queries, labels) = episode.parts();
    let logits = head.train_logits(support, queries);
    (accuracies(logits.clone(), labels.clone()).mean(), head.loss(logits, labels))
}

/// A [`Head`] that has learned the tasks of its support.
pub struct FittedHead<B: Backend> {
    ways: usize,
    logits: Box<dyn Fn(Tensor<B, 3>) -> Tensor<B, 3> + Send>,
}

impl<B: Backend> FittedHead<B> {
    /// A fitted head that is a function from queries `[t, q, d]`, at least one, to logits
    /// `[t, q, ways]`.
    pub fn new(
        ways: usize,
        logits: impl Fn(Tensor<B, 3>) -> Tensor<B, 3> + Send + 'static,
    ) -> Self {
        Self { ways, logits: Box::new(logits) }
    }

    /// Logits `[t, q, ways]` of queries `[t, q, d]`, of all tasks that were learned: all queries of each
    /// at once, if the head is [transductive](Head::transductive).
    pub fn logits(&self, queries: Tensor<B, 3>) -> Tensor<B, 3> {
        match no_logits(&queries, self.ways) {
            Some(none) => none,
            None => (self.logits)(queries),
        }
    }
}

/// The logits `[t, 0, ways]` of `queries` `[t, q, d]`, where there are none.
pub(super) fn no_logits<B: Backend>(queries: &Tensor<B, 3>, ways: usize) -> Option<Tensor<B, 3>> {
    let [tasks, asked, _] = queries.dims();
    let empty = || Tensor::empty([tasks, 0, ways], (&queries.device(), queries.dtype()));
    (tasks * asked == 0).then(empty)
}
