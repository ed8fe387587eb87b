//! Routes of the server, and the answers to requests.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use axum::body::Bytes;
use axum::extract::{
    DefaultBodyLimit, FromRequestParts, Path, Query, RawPathParams, Request, State,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use fewshot::adapted::{AdaptedModelError, THUMBNAIL_SIDE, Thumbnail, digest};
use fewshot::data::{DataError, Picture, PictureLimits, class_name};
use fewshot::hardware::PoolError;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot};

use super::content::Content;
use super::gallery::{Addition, ExamplePicture, GalleryError, Served};
use super::model::{Model, Unanswered};
use super::models::{Models, ModelsError, OpenError};

/// Bytes of a request, at most.
const BODY: usize = 16 << 20;

/// Requests at a time, at most, which bounds the memory of their bodies.
const REQUESTS: usize = 64;

/// Pictures that are decoded at a time, each of which may take 512 MiB.
const DECODED: usize = 2;

/// Sources that the page may load from: none from outside.
const POLICY: &str = "default-src 'self'; img-src 'self' blob:; frame-ancestors 'none'";

#[derive(Clone)]
pub(super) struct App {
    models: Arc<Models>,
    limits: PictureLimits,
    read_only: bool,
    requests: Arc<Semaphore>,
    /// Pictures and JSON that are decoded at a time.
    pub(super) decoding: Arc<Semaphore>,
}

pub(super) struct Refusal(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

impl From<GalleryError> for Refusal {
    fn from(error: GalleryError) -> Self {
        let status = match &error {
            GalleryError::NoClass(_) | GalleryError::NoExample(_) => StatusCode::NOT_FOUND,
            GalleryError::TooFewClasses | GalleryError::LastClasses | GalleryError::Full => {
                StatusCode::CONFLICT
            }
            GalleryError::NotFinite
            | GalleryError::Name(_)
            | GalleryError::Model(
                AdaptedModelError::AllEqual { .. }
                | AdaptedModelError::LargeValue { .. }
                | AdaptedModelError::OtherLength { .. }
                | AdaptedModelError::NoNetwork,
            ) => StatusCode::UNPROCESSABLE_ENTITY,
            GalleryError::Model(_) | GalleryError::File(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl From<ModelsError> for Refusal {
    fn from(error: ModelsError) -> Self {
        let status = match &error {
            ModelsError::Unnamed | ModelsError::NoModel(_) => StatusCode::NOT_FOUND,
            ModelsError::Name(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ModelsError::Open { error, .. } => match **error {
                PoolError::Load(OpenError::Locked(_)) => StatusCode::CONFLICT,
                PoolError::Full { .. } => StatusCode::SERVICE_UNAVAILABLE,
                PoolError::TooLarge { .. } => StatusCode::INSUFFICIENT_STORAGE,
                PoolError::Load(OpenError::Failed(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            },
            ModelsError::Folder { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl From<Unanswered> for Refusal {
    fn from(reason: Unanswered) -> Self {
        match reason {
            Unanswered::Busy => busy(),
            Unanswered::Ended => failed("the model has failed"),
            Unanswered::Refused(error) => error.into(),
        }
    }
}

pub(super) type Answer<T> = Result<T, Refusal>;

#[derive(Deserialize)]
struct PredictQuery {
    /// 1, if nothing is said.
    top: Option<usize>,
    unknown: Option<f64>,
}

pub(super) fn listen(listener: TcpListener, app: App) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, router(app)).await
    })
}

fn router(app: App) -> Router {
    let file = |kind: &'static str, content: &'static str| {
        let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_SECURITY_POLICY, POLICY)];
        get(move || async move { (headers, content) })
    };
    let model = Router::new()
        .route("/model", get(describe))
        .route("/model/file", get(download))
        .route("/predict", post(predict))
        .route("/classes/{class}", delete(remove_class))
        .route("/classes/{class}/examples", post(add))
        .route("/examples/{number}", delete(remove_example))
        .route("/examples/{number}/picture", get(thumbnail));
    Router::new()
        .route("/", file("text/html; charset=utf-8", include_str!("page/index.html")))
        .route("/page.css", file("text/css; charset=utf-8", include_str!("page/page.css")))
        .route("/page.js", file("text/javascript; charset=utf-8", include_str!("page/page.js")))
        .route("/v1/models", get(list))
        .nest("/v1", model.clone())
        .nest("/v1/models/{model}", model)
        .fallback(|| async { Refusal(StatusCode::NOT_FOUND, "there is nothing here".to_owned()) })
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(app.clone(), admitted))
        .with_state(app)
}

/// Refuses what other sites' pages send by a browser on this machine, changes where there are to be none, and more
/// requests than memory is meant for.
async fn admitted(State(app): State<App>, request: Request, next: Next) -> Answer<Response> {
    let forbidden = |why: &str| Err(Refusal(StatusCode::FORBIDDEN, why.to_owned()));
    if !is_from_this_page(request.headers()) {
        return forbidden("pages of other sites are not answered");
    }
    if !is_encoded(request.uri().path()) {
        let why = "a % in the path of a request stands before two hexadecimal digits: write %25";
        return Err(Refusal(StatusCode::BAD_REQUEST, why.to_owned()));
    }
    let (method, path) = (request.method(), request.uri().path());
    let reads = method.is_safe() || *method == Method::POST && path.ends_with("/predict");
    if app.read_only && !reads {
        return forbidden("this model is served read-only");
    }
    let _permit = app.requests.try_acquire().map_err(|_| busy())?;
    let response = next.run(request).await;
    let json = HeaderValue::from_static("application/json");
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error())
        || response.headers().get(header::CONTENT_TYPE) == Some(&json)
    {
        return Ok(response);
    }
    // What does not reach a route is refused in plain text, or none.
    let text = axum::body::to_bytes(response.into_body(), BODY).await.unwrap_or_default();
    let reason = status.canonical_reason().unwrap_or_default();
    let text = if text.is_empty() { reason.into() } else { String::from_utf8_lossy(&text) };
    Err(Refusal(status, text.into_owned()))
}

/// True where every `%` stands for a byte: any other would be taken for itself.
fn is_encoded(path: &str) -> bool {
    let mut after = path.split('%').skip(1);
    after.all(|of| of.len() >= 2 && of.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

/// `true` where the host is an address or this machine, no name that another site could let point here, and the page is
/// of the same host.
fn is_from_this_page(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(host) = text(header::HOST) else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let here = name == "localhost" || bare.parse::<IpAddr>().is_ok();
    let origin = headers.get(header::ORIGIN).map(|_| text(header::ORIGIN).unwrap_or_default());
    here && origin.is_none_or(|origin| origin.split_once("://").is_some_and(|(_, of)| of == host))
}

fn failed(why: &str) -> Refusal {
    Refusal(StatusCode::INTERNAL_SERVER_ERROR, why.to_owned())
}

/// The result of work on a thread of its own, `None` where the work panics. A system without a thread for it refuses the
/// request; the pool of threads of `tokio` would panic.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Answer<Option<T>> {
    let (sender, result) = oneshot::channel();
    let thread = thread::Builder::new().spawn(move || drop(sender.send(work())));
    thread.map_err(|error| {
        Refusal(StatusCode::SERVICE_UNAVAILABLE, format!("no thread for the request: {error}"))
    })?;
    Ok(result.await.ok())
}

pub(super) fn busy() -> Refusal {
    Refusal(StatusCode::SERVICE_UNAVAILABLE, "too many requests at a time".to_owned())
}

/// A picture as the network takes it, and as the page shows it.
struct Decoded {
    image: Vec<f32>,
    thumbnail: Thumbnail,
}

/// The model that a request names, which stays open until the request is answered.
struct Asked(Arc<Model>);

impl FromRequestParts<App> for Asked {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Self> {
        let parameters = RawPathParams::from_request_parts(parts, app).await.ok();
        let name = parameters.iter().flatten().find(|(key, _)| *key == "model");
        let (models, name) = (app.models.clone(), name.map(|(_, name)| name.to_owned()));
        // Opening a file takes its time.
        let model = on_thread(move || models.get(name.as_deref())).await?;
        Ok(Self(model.ok_or_else(|| failed("the model cannot be opened"))??))
    }
}

/// The class in the path of a request.
#[derive(Deserialize)]
struct OfClass {
    class: String,
}

/// The example in the path of a request.
#[derive(Deserialize)]
struct OfExample {
    number: usize,
}

impl App {
    pub(super) fn new(models: Models, limits: PictureLimits, read_only: bool) -> Self {
        Self {
            models: models.into(),
            limits,
            read_only,
            requests: Semaphore::new(REQUESTS).into(),
            decoding: Semaphore::new(DECODED).into(),
        }
    }

    async fn decoded(&self, model: &Model, body: Bytes) -> Answer<Decoded> {
        let no_picture = |why: String| Refusal(StatusCode::UNPROCESSABLE_ENTITY, why);
        if body.is_empty() {
            return Err(no_picture("the body of the request is to be a picture".to_owned()));
        }
        let preparation =
            model.preparation.ok_or(GalleryError::Model(AdaptedModelError::NoNetwork))?;
        let limits = self.limits;
        let permit = self.decoding.clone().acquire_owned().await.map_err(|_| busy())?;
        let decode = move || {
            // Held until it is decoded, even if who asked has left.
            let _permit = permit;
            let picture = Picture::decode_within(&body, "the picture", limits)?;
            let image = preparation.apply(&picture);
            Ok(Decoded { image, thumbnail: picture.thumbnail(THUMBNAIL_SIDE).into() })
        };
        let decoded = on_thread(decode).await?;
        let decoded =
            decoded.ok_or_else(|| no_picture("the picture cannot be decoded".to_owned()))?;
        decoded.map_err(|error: DataError| no_picture(error.to_string()))
    }
}

async fn list(State(app): State<App>) -> Answer<Json<Value>> {
    let models = on_thread(move || app.models.describe()).await?;
    Ok(Json(models.ok_or_else(|| failed("the models cannot be listed"))??))
}

async fn describe(State(app): State<App>, Asked(model): Asked) -> Answer<Json<Value>> {
    described(&app, &model).await
}

async fn described(app: &App, model: &Model) -> Answer<Json<Value>> {
    let mut description = model.run(|served| Ok(served.describe())).await?;
    description["read_only"] = json!(app.read_only);
    description["pictures"] = json!(model.thumbnails().keys().collect::<Vec<_>>());
    Ok(Json(description))
}

async fn predict(
    State(app): State<App>,
    Asked(model): Asked,
    Query(PredictQuery { top, unknown }): Query<PredictQuery>,
    content: Content,
) -> Answer<Json<Value>> {
    let top = top.unwrap_or(1);
    if top == 0 || unknown.is_some_and(|least| !(0.0..=1.0).contains(&least)) {
        let why = "top is at least 1, and unknown between 0 and 1";
        return Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, why.to_owned()));
    }
    let predict = move |served: &mut dyn Served, row: Vec<f32>| served.predict(&row, top, unknown);
    Ok(Json(match content {
        Content::Picture(file) => {
            let Decoded { image, .. } = app.decoded(&model, file).await?;
            model.embed(image, predict).await?
        }
        Content::Embedding(row) => model.run(move |served| predict(served, row)).await?,
        Content::Embeddings(rows) => {
            let each = move |served: &mut dyn Served| {
                rows.into_iter().map(|row| predict(served, row)).collect::<Result<Vec<_>, _>>()
            };
            json!({ "predictions": model.run(each).await? })
        }
    }))
}

async fn add(
    State(app): State<App>,
    Asked(model): Asked,
    Path(OfClass { class }): Path<OfClass>,
    content: Content,
) -> Answer<(StatusCode, Json<Value>)> {
    let class = class_name(class.trim()).map_err(GalleryError::Name)?;
    let (addition, thumbnail) = match content {
        Content::Picture(file) => {
            let digest = digest(&file);
            let Decoded { image, thumbnail } = app.decoded(&model, file).await?;
            let picture = ExamplePicture { thumbnail: thumbnail.clone(), digest };
            let add = |served: &mut dyn Served, row| served.add(class, row, Some(picture));
            (model.embed(image, add).await?, Some(thumbnail))
        }
        Content::Embedding(row) => {
            (model.run(move |served| served.add(class, row, None)).await?, None)
        }
        Content::Embeddings(_) => {
            let why = "an example is one embedding, as {\"embedding\": [0.5, -0.25]}";
            return Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, why.to_owned()));
        }
    };
    Ok(match addition {
        Addition::New(number) => {
            let thumbnail = thumbnail.map(|thumbnail| (number, thumbnail));
            model.thumbnails().extend(thumbnail);
            (StatusCode::CREATED, Json(json!({ "example": number })))
        }
        Addition::There(number) => {
            (StatusCode::OK, Json(json!({ "example": number, "already_there": true })))
        }
    })
}

async fn remove_class(
    State(app): State<App>,
    Asked(model): Asked,
    Path(OfClass { class }): Path<OfClass>,
) -> Answer<Json<Value>> {
    let removed = model.run(move |served| served.remove_class(&class)).await?;
    model.thumbnails().retain(|number, _| !removed.contains(number));
    described(&app, &model).await
}

async fn remove_example(
    State(app): State<App>,
    Asked(model): Asked,
    Path(OfExample { number }): Path<OfExample>,
) -> Answer<Json<Value>> {
    model.run(move |served| served.remove_example(number)).await?;
    model.thumbnails().remove(&number);
    described(&app, &model).await
}

async fn thumbnail(
    Asked(model): Asked,
    Path(OfExample { number }): Path<OfExample>,
) -> Answer<Response> {
    let thumbnail = model.thumbnails().get(&number).cloned();
    let missing = || Refusal(StatusCode::NOT_FOUND, format!("no picture of example {number}"));
    let bytes = thumbnail.ok_or_else(missing)?.to_vec();
    Ok(([(header::CONTENT_TYPE, "image/jpeg")], bytes).into_response())
}

async fn download(Asked(model): Asked) -> Answer<Response> {
    let bytes = model.run(|served| served.file()).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"model.fewshot\""),
    ];
    Ok((headers, bytes).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percent_sign_stands_for_a_byte() {
        for path in ["", "/v1/model", "/v1/classes/%25/examples", "/%e2%82%ACx/%2f"] {
            assert!(is_encoded(path), "{path}");
        }
        for path in ["/v1/classes/%/examples", "%", "/a%2", "/a%2/b", "/%zz", "/100%%", "/%+1"] {
            assert!(!is_encoded(path), "{path}");
        }
    }

    #[test]
    fn only_the_page_itself_and_programs_are_answered() {
        let answered = |host: &'static str, origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            }
            is_from_this_page(&headers)
        };
        for host in ["127.0.0.1:8080", "localhost:8080", "localhost", "[::1]:8080", "192.168.1.7"] {
            assert!(answered(host, None), "{host}");
        }
        for host in ["evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            assert!(!answered(host, None), "{host}");
        }
        assert!(answered("127.0.0.1:8080", Some("http://127.0.0.1:8080")));
        for origin in ["http://evil.example", "http://127.0.0.1:8081", "null"] {
            assert!(!answered("127.0.0.1:8080", Some(origin)), "{origin}");
        }
        assert!(!is_from_this_page(&HeaderMap::new()));
    }
}
