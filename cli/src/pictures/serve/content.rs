//! Content of requests: a picture, or embeddings.

use std::slice;

use axum::body::Bytes;
use axum::extract::multipart::MultipartError;
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{StatusCode, header};
use serde::Deserialize;

use super::routes::{Answer, App, Refusal, busy};

/// Embeddings of a request, at most.
const EMBEDDINGS: usize = 256;

/// The form of JSON that is read, for errors.
const JSON: &str = "the body is to be {\"embedding\": [0.5, -0.25]} or {\"embeddings\": [[0.5, -0.25]]} with numbers";

/// The field of a form that has the picture.
const FIELD: &str = "picture";

/// Content of a request.
pub(super) enum Content {
    /// The file of a picture: the body, or the field `picture` of the form that is the body.
    Picture(Bytes),
    /// `{"embedding": [..]}` as JSON.
    Embedding(Vec<f32>),
    /// `{"embeddings": [[..], ..]}` as JSON.
    Embeddings(Vec<Vec<f32>>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vectors {
    embedding: Option<Vec<f32>>,
    embeddings: Option<Vec<Vec<f32>>>,
}

impl FromRequest<App> for Content {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &App) -> Answer<Self> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().trim_start().to_ascii_lowercase();
        if !kind.starts_with("multipart/form-data") {
            let body = Bytes::from_request(request, app).await;
            let body = body.map_err(|error| Refusal(error.status(), error.body_text()))?;
            return match kind.starts_with("application/json") {
                true => Self::from_json(&body, app).await,
                false => Ok(Self::Picture(body)),
            };
        }
        let form = Multipart::from_request(request, app).await;
        let form = form.map_err(|error| Refusal(error.status(), error.body_text()))?;
        let (mut pictures, others) =
            fields(form).await.map_err(|error| Refusal(error.status(), error.body_text()))?;
        match (pictures.pop(), pictures.len()) {
            (Some(picture), 0) => Ok(Self::Picture(picture)),
            (Some(_), more) => {
                let count = more + 1;
                unfit(format!("the form has {count} fields {FIELD}: a request is for one picture"))
            }
            (None, _) if others.is_empty() => unfit(format!("the form lacks the field {FIELD}")),
            (None, _) => {
                let others = others.join(", ");
                unfit(format!("the form lacks the field {FIELD}: it has {others}"))
            }
        }
    }
}

impl Content {
    async fn from_json(body: &[u8], app: &App) -> Answer<Self> {
        // Numbers take more memory than their text.
        let _permit = app.decoding.acquire().await.map_err(|_| busy())?;
        let Vectors { embedding, embeddings } = match serde_json::from_slice(body) {
            Ok(vectors) => vectors,
            Err(error) => return unfit(format!("{JSON}: {error}")),
        };
        let content = match (embedding, embeddings) {
            (Some(row), None) => Self::Embedding(row),
            (None, Some(rows)) => Self::Embeddings(rows),
            (Some(_), Some(_)) => return unfit(format!("{JSON}: it has both")),
            (None, None) => return unfit(format!("{JSON}: it has neither")),
        };
        let rows = content.embeddings();
        if rows.is_empty() || rows.len() > EMBEDDINGS {
            let count = rows.len();
            return unfit(format!("there are {count} embeddings: a request has 1 to {EMBEDDINGS}"));
        }
        let is_broken = |row: &Vec<f32>| !row.iter().all(|value| value.is_finite());
        match rows.iter().position(is_broken) {
            Some(row) => unfit(format!("embedding {row} has a number that 32 bits do not hold")),
            None => Ok(content),
        }
    }

    fn embeddings(&self) -> &[Vec<f32>] {
        match self {
            Self::Picture(_) => &[],
            Self::Embedding(row) => slice::from_ref(row),
            Self::Embeddings(rows) => rows,
        }
    }
}

fn unfit<T>(why: String) -> Answer<T> {
    Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, why))
}

/// Contents of the fields `picture` of a form, and the names of the others.
async fn fields(mut form: Multipart) -> Result<(Vec<Bytes>, Vec<String>), MultipartError> {
    let (mut pictures, mut others) = (Vec::new(), Vec::new());
    while let Some(field) = form.next_field().await? {
        let name = field.name().unwrap_or_default().to_owned();
        match name.as_str() {
            FIELD => pictures.push(field.bytes().await?),
            _ => others.push(name),
        }
    }
    Ok((pictures, others))
}
