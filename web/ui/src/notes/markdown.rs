//! Markdown (CommonMark with tables and strikethrough) as HTML that is safe to show: HTML in the text is escaped, links lead to web pages
//! and headings only, and images become links.

use pulldown_cmark::{CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd, html};

/// The word after the ticks of a fence with tables and charts.
const FENCE: &str = "assay";

/// A text, in parts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Document {
    /// The first heading as plain text.
    pub title: String,
    pub parts: Vec<Part>,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    /// HTML.
    Html(String),
    /// What a fence asks for, and the line of its first line, from 1.
    Fence { text: String, line: usize },
}

/// Reads a text.
pub(super) fn read_markdown(text: &str) -> Document {
    let mut document = Document { title: String::new(), parts: Vec::new() };
    let mut pending: Vec<Event<'_>> = Vec::new();
    let mut fence: Option<(String, usize)> = None;
    let mut in_title = false;
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        if let Some((content, _)) = &mut fence {
            match event {
                Event::Text(part) => content.push_str(&part),
                Event::End(TagEnd::CodeBlock) => {
                    flush(&mut pending, &mut document.parts);
                    document.parts.extend(fence.take().map(|(text, line)| Part::Fence { text, line }));
                }
                _ => {}
            }
            continue;
        }
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info)))
                if info.split_whitespace().next() == Some(FENCE) =>
            {
                // The content begins on the line after the ticks.
                let line = text[..range.start].matches('\n').count() + 2;
                fence = Some((String::new(), line));
                continue;
            }
            Event::Start(Tag::Heading { .. }) if document.title.is_empty() => in_title = true,
            Event::End(TagEnd::Heading(_)) => in_title = false,
            Event::Text(ref part) | Event::Code(ref part) if in_title => document.title.push_str(part),
            _ => {}
        }
        pending.push(make_safe(event));
    }
    flush(&mut pending, &mut document.parts);
    document
}

fn flush(pending: &mut Vec<Event<'_>>, parts: &mut Vec<Part>) {
    if !pending.is_empty() {
        let mut written = String::new();
        html::push_html(&mut written, pending.drain(..));
        parts.push(Part::Html(written));
    }
}

/// An event that puts no markup of its writer and no other address than that of a web page into the HTML.
fn make_safe(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Link { link_type, dest_url: safe_address(dest_url), title, id })
        }
        // A page shows nothing from elsewhere. The alternative text is what stands between start and end.
        Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Link { link_type, dest_url: safe_address(dest_url), title, id })
        }
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        event => event,
    }
}

/// The address of a web page, a mail or a heading; any other becomes `#`.
fn safe_address(address: CowStr<'_>) -> CowStr<'_> {
    let lower = address.to_ascii_lowercase();
    let known = ["https://", "http://", "mailto:", "#", "/runs", "/compare", "/claims", "/models", "/regressions"];
    // `//host` would be another site, and begins with none of these.
    if known.iter().any(|start| lower.starts_with(start)) { address } else { CowStr::Borrowed("#") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html_of(text: &str) -> String {
        let part = |part: Part| match part {
            Part::Html(html) => html,
            Part::Fence { text, line } => format!("[{line}: {text}]"),
        };
        read_markdown(text).parts.into_iter().map(part).collect()
    }

    #[test]
    fn fences_are_found_with_their_lines() {
        let text = "# One `two`\n\ntext\n\n```assay\nresults 1\ncurves 2\n```\n\n```yaml\na: b\n```\n\n~~~assay x\nsweep 3\n~~~\n";
        let document = read_markdown(text);
        assert_eq!(document.title, "One two");
        let fences: Vec<(String, usize)> = document
            .parts
            .into_iter()
            .filter_map(|part| match part {
                Part::Fence { text, line } => Some((text, line)),
                Part::Html(_) => None,
            })
            .collect();
        assert_eq!(fences, [("results 1\ncurves 2\n".to_owned(), 6), ("sweep 3\n".to_owned(), 15)]);
        let html = html_of(text);
        assert!(html.contains("<h1>One <code>two</code></h1>") && html.contains("a: b"), "{html}");
        assert_eq!(html_of("```assay\nresults 1"), "[2: results 1]", "a fence that does not end");
        assert_eq!(read_markdown("").parts, []);
    }

    #[test]
    fn nothing_that_is_written_is_markup() {
        let hostile = "<script>alert(1)</script>\n\na <img src=x onerror=alert(2)> b\n\n[x](javascript:alert(3)) [y](JAVASCRIPT:x) \
            [z](data:text/html,x) [v](//evil.test) ![a](https://evil.test/x.png \"t\")\n\n`<b>`\n\n```\"><script>\nx\n```\n\n<div>\n\n\
            | a | b |\n|---|---|\n| <i> | 2 |\n";
        let html = html_of(hostile);
        for markup in
            ["<script", "<img", "<div", "<b>", "<i>", "javascript:", "JAVASCRIPT:", "data:", "//evil.test\"", "src=\""]
        {
            assert!(!html.contains(markup), "{markup}: {html}");
        }
        assert!(html.contains("&lt;script&gt;alert(1)") && html.contains("<table>"), "{html}");
        assert!(html.contains("<a href=\"https://evil.test/x.png\" title=\"t\">a</a>"), "an image is a link: {html}");
    }

    #[test]
    fn links_lead_to_web_pages_and_runs() {
        let html =
            html_of("[a](https://a.org) [b](/runs/3) [c](#top) [d](mailto:x@y.z) [e](notes.txt) <https://f.org>");
        for address in ["https://a.org", "/runs/3", "#top", "mailto:x@y.z", "https://f.org"] {
            assert!(html.contains(&format!("href=\"{address}\"")), "{address}: {html}");
        }
        assert!(html.contains("<a href=\"#\">e</a>"), "{html}");
    }
}
