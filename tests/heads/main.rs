//! Classifiers over embeddings.
#![recursion_limit = "256"]

#[macro_use]
#[path = "../backends/mod.rs"]
mod backends;
mod baseline;
mod baseline_plus_plus;
mod bd_cspn;
mod closed_form;
mod deep_emd;
mod descending;
mod dn4;
mod easyfsl;
mod feat;
mod finetune;
mod gradients;
mod laplacian_shot;
mod laws;
mod learners;
mod leo;
mod matching_net;
mod meta_baseline;
mod numbers;
mod prototypes;
mod pt_map;
mod refusals;
mod relation_net;
mod simple_cnaps;
mod simple_shot;
mod soft_k_means;
mod tim;
mod transductive_fine_tuning;

on_every_backend! {
    logits_permute_with_the_classes
    rows_permute_with_the_queries
    a_task_among_others_is_the_task_alone
    inductive_logits_do_not_depend_on_other_queries
    transductive_logits_depend_on_other_queries
    queries_at_their_class_are_classified
    equal_embeddings_have_finite_logits
    no_query_has_no_logits_and_a_single_one_has_some
    fitted_heads_send_no_gradient_back
    formulas_have_the_probabilities_of_their_heads
    gradients_are_central_differences
}
