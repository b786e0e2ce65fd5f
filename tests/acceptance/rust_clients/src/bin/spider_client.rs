//! Crawls a site with spider's defaults and prints the URLs of the pages that it got.

use spider::tokio;
use spider::website::Website;

#[tokio::main]
async fn main() {
    let start = std::env::args().nth(1).expect("usage: spider_client URL");
    let mut website = Website::new(&start);
    website.scrape().await;
    for page in website.get_pages().into_iter().flatten() {
        if page.status_code.is_success() {
            println!("{}", page.get_url());
        }
    }
}
