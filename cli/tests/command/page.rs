//! The page of `fewshot serve`, in a browser.

mod browser;

use std::fs;

use burn::backend::Flex;
use fewshot::adapted::AdaptedModel;
use tempfile::TempDir;

use super::pictures::{BLUE, GREEN, RED, text, weights};
use super::serve::{Server, photo, two_models};
use browser::Browser;

/// What a visitor of the page does: drops pictures, names a class, corrects an answer, removes a class, downloads the model,
/// and comes back.
#[test]
#[ignore = "needs chromedriver, which drives a browser"]
fn the_page_teaches_and_classifies() {
    let folder = TempDir::new().unwrap();
    let browser = Browser::start(folder.path());
    let weights = weights(folder.path());
    let (backbone, file) =
        (format!("efficientnet-lite0:{}", text(&weights)), folder.path().join("new.fewshot"));
    let server = Server::start(&[text(&file), "--backbone", &backbone]);
    browser.open(&server.url);
    browser.until("document.title === 'new.fewshot – fewshot'");
    browser.screenshot("empty");

    let examples = |name: &str, count: usize| {
        format!(
            "document.querySelectorAll('[data-class=\"{name}\"] .examples img').length === {count}"
        )
    };
    let shown = "[...document.images].every((image) => image.complete && image.naturalWidth > 0)";
    // Without a name the class is not made, and the page says why.
    let (red, _) = photo(folder.path(), RED);
    browser.choose("#new input[type=file]", &[&red]);
    browser.until("document.querySelector('#problem').textContent === 'Name the class first.'");
    for (name, colour) in [("red", RED), ("<b>green", GREEN), ("blue", BLUE)] {
        photo(folder.path(), colour);
        let of = folder.path().join(format!("photos/{}-{}", colour[0], colour[2]));
        browser.write("#name", name);
        browser.choose("#new input[type=file]", &[&of.join("0.png"), &of.join("1.png")]);
        browser.until(&examples(name, 2));
        browser.until("document.querySelector('#name').value === ''");
    }
    browser.until(shown);
    browser.screenshot("taught");
    browser.click("[data-class=\"blue\"] .remove");
    browser.confirm();
    browser.until(&examples("blue", 0));
    browser.drop_on("#unnamed", "leaf.png", &photo(folder.path(), GREEN).1);
    browser.until("document.querySelector('#answers .verdict').textContent === '<b>green'");
    browser.until("document.querySelectorAll('#answers .bar').length === 2");
    browser.until("document.querySelectorAll('#answers .nearest img').length === 3");
    browser.until(shown);
    browser.screenshot("answered");
    // The answer becomes an example.
    browser.click("#answers .correct button");
    browser.until(&examples("<b>green", 3));
    browser.drop_on("#unnamed", "notes.txt", b"no picture");
    browser
        .until("document.querySelector('#answers .verdict').textContent.includes('the picture')");
    browser.click("[data-class=\"red\"] .examples button");
    browser.until(&examples("red", 1));

    browser.open(&server.url);
    browser.until(&format!("{} && {}", examples("red", 1), examples("<b>green", 3)));
    browser.until(shown);
    let model = AdaptedModel::<Flex>::open(&file, &Default::default()).unwrap();
    assert_eq!(model.class_names(), ["<b>green", "red"]);
    assert_eq!(model.examples().rows(), 4);
    browser.click("#download");
    let (written, downloaded) = (fs::read(&file).unwrap(), folder.path().join("model.fewshot"));
    let whole = || fs::read(&downloaded).is_ok_and(|found| found == written);
    browser.wait("the download is the model's file", whole);

    // Another day the pictures are still there.
    drop(server);
    let server = Server::start(&[text(&file)]);
    browser.open(&server.url);
    browser.until(&format!("{} && {}", examples("red", 1), examples("<b>green", 3)));
    browser.until(shown);
}

#[test]
#[ignore = "needs chromedriver, which drives a browser"]
fn the_page_of_a_folder_shows_the_model_that_is_chosen() {
    let (folder, models) = two_models();
    let browser = Browser::start(folder.path());
    let server = Server::start(&[text(&models)]);
    browser.open(&server.url);
    browser.until("document.title === 'birds.fewshot – fewshot'");
    browser.until("document.querySelectorAll('#classes > li').length === 2");
    browser.drop_on("#unnamed", "leaf.png", &photo(folder.path(), GREEN).1);
    browser.until("document.querySelector('#answers .verdict').textContent === 'green'");
    let choose = "(() => { const choice = document.querySelector('#choice select'); \
                  choice.value = 'skies'; choice.onchange(); return true; })()";
    browser.until(choose);
    browser.until("document.title === 'skies.fewshot – fewshot'");
    browser.until("document.querySelectorAll('#classes > li').length === 3");
    browser.until("document.querySelectorAll('#answers > li').length === 0");
    browser.drop_on("#unnamed", "sky.png", &photo(folder.path(), BLUE).1);
    browser.until("document.querySelector('#answers .verdict').textContent === 'blue'");
    browser.until("document.querySelectorAll('#answers .nearest img').length === 3");
    // The address has the choice.
    browser.open(&format!("{}/#skies", server.url));
    browser.until("document.querySelector('#choice select').value === 'skies'");
}
