//! The site in a real browser: headless Chromium, controlled through chromedriver. Screenshots of every page, for people,
//! are left in cargo's folder for temporary files of tests.

mod axe;
mod site;
mod webdriver;

#[path = "../../web/ui/tests/fixture/mod.rs"]
mod fixture;

use std::path::Path;

use fixture::Live;
use serde_json::json;
use site::Site;
use webdriver::Browser;

const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

const CURVES: &str = "document.querySelectorAll('#curves .curve-names button').length >= 5";
const ONE_CURVE: &str = "document.querySelectorAll('#curves .uplot').length === 1";
const HEAT_MAP: &str = "document.querySelectorAll('#sweep .heat-map .heat-cell').length >= 1";

/// A family, another one, and a cell of it.
const COMPARE: &str = "/compare?of=1:transformer&of=1:ten&of=1:ten%5Bchunk=16,states=64%5D";

/// Name, path, and the elements that must be drawn.
const PAGES: &[(&str, &str, &str)] = &[
    ("runs", "/", "document.querySelectorAll('table.runs tbody tr').length === 18"),
    ("run", "/runs/1", CURVES),
    ("run-live", "/runs/3", ONE_CURVE),
    ("run-hostile", "/runs/2", ONE_CURVE),
    ("task", "/runs/1/tasks/1", ONE_CURVE),
    ("sweep-hostile", "/runs/2/sweep", HEAT_MAP),
    ("task-hostile", "/runs/2/tasks/0", ONE_CURVE),
    ("task-waiting", "/runs/3/tasks/4", "document.querySelector('#curves.empty')"),
    ("sweep", "/runs/1/sweep", HEAT_MAP),
    ("sweep-line", "/runs/1/sweep?y=-", "document.querySelectorAll('#sweep .errorbar').length === 3"),
    ("sweep-single", "/runs/1/sweep?x=-&y=-", "document.querySelector('.single .figure')"),
    ("pareto", "/runs/1/pareto", "document.querySelectorAll('.pareto-plot .point').length === 7"),
    ("pareto-live", "/runs/3/pareto", "document.querySelector('#head .badge')"),
    (
        "parallel",
        "/runs/1/parallel?keep.states=16..32",
        "document.querySelectorAll('.parallel-plot .line').length === 4",
    ),
    ("parallel-none", "/runs/2/parallel", "document.querySelector('#head .badge')"),
    ("importance", "/runs/1/importance", "document.querySelectorAll('#importance .strip').length === 4"),
    ("importance-none", "/runs/3/importance", "document.querySelector('#head .badge')"),
    ("machine", "/machine?span=1h", "document.querySelector('.usage-plot .busy')"),
    ("notes-list", "/notes", "document.querySelectorAll('#note-files li').length === 1"),
    ("notes", "/notes?workflow={notes}", "document.querySelectorAll('#notes .note-figure').length === 6"),
    (
        "aggregate",
        "/runs/1/aggregate?axis=chunk&metric=test/loss",
        "document.querySelectorAll('#aggregate .curve').length === 3",
    ),
    ("aggregate-none", "/runs/1/aggregate", "document.querySelector('#aggregate-obstacle')"),
    ("editor", "/editor", "document.querySelector('#editor-result h2')"),
    ("models", "/models", "document.querySelectorAll('#models tbody tr').length >= 2"),
    ("claims", "/claims", "document.querySelectorAll('article.claim').length === 4"),
    ("api", "/api", "document.querySelectorAll('tbody tr').length >= 10"),
    ("error", "/runs/99", "document.querySelector('.notice .what')"),
    ("regressions", "/regressions?workflow=nightly&metric=test/loss", "document.querySelector('.change.worse')"),
    ("length", "/runs/5/length", "document.querySelectorAll('.length-plot .family').length === 2"),
    ("length-none", "/runs/1/length", "document.querySelector('#head .badge')"),
    ("cell", "/runs/1/cells/ten%5Bchunk%3D16%2Cstates%3D16%5D", ONE_CURVE),
    (
        "cell-hostile",
        "/runs/2/cells/evil%5Baxis%20%3Cb%3E%3Dx%2Cn%3D2%5D",
        "document.querySelector('#replicates table')",
    ),
    ("compare-empty", "/compare", "document.querySelector('.notice')"),
    ("compare", COMPARE, "document.querySelector('.contrasts .strip') && document.querySelector('#curves .uplot')"),
    (
        "runs-chosen",
        "/runs?filter=states%3E32%20accuracy%3E0.5&columns=state,seed,states,accuracy,commit,results",
        "document.querySelectorAll('table.runs tbody tr').length === 3",
    ),
    ("error-filter", "/runs?filter=tag:x%20state:fialed", "document.querySelector('.notice .code')"),
];

/// The centre of an element, and its size, after scrolling it into view.
fn area(browser: &Browser, selector: &str) -> (i64, i64, i64, i64) {
    let area = browser.run(&format!(
        "const element = document.querySelector('{selector}'); element.scrollIntoView({{block: 'center'}});
         const box = element.getBoundingClientRect();
         return [box.x + box.width / 2, box.y + box.height / 2, box.width, box.height].map(Math.round);"
    ));
    let [x, y, width, height] = [0, 1, 2, 3].map(|at| area[at].as_i64().unwrap());
    (x, y, width, height)
}

/// The label at the pointer on the curves; empty if no curve is near.
const TIP: &str =
    "[...document.querySelectorAll('#curves .curve-tip:not([hidden])')].map((e) => e.textContent).join('')";

/// Points at the curves until a label appears, and returns it.
fn label_at(browser: &Browser, x: i64, y: i64) -> String {
    for at in (-160..160).step_by(6) {
        browser.point(&[(x + 3, y + at), (x, y + at)], false);
        let text = browser.run(&format!("return {TIP}"));
        if text != json!("") {
            return text.as_str().unwrap().to_owned();
        }
    }
    String::new()
}

/// The step in a label.
fn step_of(label: &str) -> f64 {
    let line = label.lines().find_map(|line| line.strip_prefix("step "));
    line.and_then(|step| step.parse().ok()).unwrap_or_else(|| panic!("no step in {label:?}"))
}

#[test]
fn every_page_is_well_in_both_themes_and_both_widths() {
    let (site, browser) = (Site::start(), Browser::start());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let axe = axe::load_axe();
    let (mut grounds, mut violations) = (Vec::new(), Vec::new());
    for theme in ["light", "dark"] {
        for (width, height) in [(1280, 900), (390, 844)] {
            browser.appear(theme, width, height);
            for (name, path, drawn) in PAGES {
                browser.open(&site.page(path));
                browser.wait(name, drawn);
                let wide = browser.run("return document.documentElement.scrollWidth");
                assert!(wide.as_u64().unwrap() <= u64::from(width), "{name} is {wide} wide at {width}");
                let unnamed = "return [...document.querySelectorAll('[data-curves], select, input:not([type=hidden]), svg[role]')]
                    .filter((e) => !e.getAttribute('aria-label') && !e.closest('label')).map((e) => e.outerHTML.slice(0, 80))";
                assert_eq!(browser.run(unnamed), json!([]), "{name}");
                browser.screenshot(folder, &format!("{name}-{theme}-{width}"));
                let found = axe::find_violations(&browser, &axe);
                violations.extend(found.into_iter().map(|what| format!("{name} in {theme} at {width}: {what}")));
                if name.starts_with("error") {
                    // The browser itself logs the status; no other message is allowed.
                    let status = |line: &String| line.contains("404") || line.contains("400");
                    assert!(browser.console().iter().all(status));
                }
                site.is_content(&browser);
            }
            grounds.push(browser.run("return getComputedStyle(document.documentElement).backgroundColor"));
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    assert_eq!(grounds[0], grounds[1]);
    assert_ne!(grounds[0], grounds[2]);
}

#[test]
fn curves_can_be_hovered_zoomed_and_distinguished() {
    let (site, browser) = (Site::start(), Browser::start());
    browser.appear("light", 1280, 900);
    browser.open(&site.page("/runs/1"));
    browser.wait("the curves", CURVES);
    let (x, y, width, _) = area(&browser, "#curves .u-over");
    let text = label_at(&browser, x, y);
    assert!(text.contains("over 2 replicates"), "{text:?}");
    let before = [x - width / 8, x + width / 8].map(|x| step_of(&label_at(&browser, x, y)));
    browser.point(&[(x - width / 8, y - 60), (x, y), (x + width / 8, y + 60)], true);
    let wide = |browser: &Browser| {
        let ends = [x - width / 3, x + width / 3].map(|x| step_of(&label_at(browser, x, y)));
        ends[1] - ends[0]
    };
    // The selected quarter of the width now fills all of it.
    assert!(wide(&browser) <= (before[1] - before[0]) * 1.1, "{before:?}");

    let first = "document.querySelector('#curves .curve-names button')";
    browser.run(&format!("{first}.click()"));
    browser.wait("a hidden line", &format!("{first}.getAttribute('aria-pressed') === 'false'"));
    site.is_content(&browser);
}

#[test]
fn charts_follow_the_theme_while_they_are_open() {
    let (site, browser) = (Site::start(), Browser::start());
    let ink = "getComputedStyle(document.querySelector('#sweep .column-label')).fill";
    browser.appear("light", 1280, 900);
    browser.open(&site.page("/runs/1/sweep"));
    browser.wait("the heat map", HEAT_MAP);
    let light = browser.run(&format!("return {ink}"));
    browser.appear("dark", 1280, 900);
    let dark = browser.wait("dark ink", &format!("{ink} !== {light} && {ink}"));
    assert_ne!(light, dark);
    site.is_content(&browser);
}

#[test]
fn a_page_follows_its_run_and_stops_when_it_ends() {
    let (site, browser) = (Site::start(), Browser::start());
    browser.appear("dark", 1280, 900);
    browser.open(&site.page("/runs/3"));
    browser.wait("the curves", ONE_CURVE);
    let (x, y, width, _) = area(&browser, "#curves .u-over");
    assert_eq!(step_of(&label_at(&browser, x + width / 2 - 4, y)), 39.0);
    // The user looks at the first half while more points arrive.
    browser.point(&[(x - width / 2 + 2, y - 60), (x - 20, y), (x, y + 60)], true);
    let kept = step_of(&label_at(&browser, x + width / 2 - 4, y));
    assert!((15.0..25.0).contains(&kept), "{kept}");
    site.change(async |store| Live::grow(store, 40..90).await);
    let answer = "performance.getEntriesByType('resource').filter((e) => e.name.includes('/curves?')).length";
    let asked = browser.run(&format!("return {answer}")).as_u64().unwrap();
    browser.wait("later answers", &format!("{answer} > {}", asked + 2));
    assert_eq!(step_of(&label_at(&browser, x + width / 2 - 4, y)), kept, "the reader's zoom was lost");
    browser.run("document.querySelector('#curves .u-over').dispatchEvent(new MouseEvent('dblclick', {bubbles: true}))");
    assert_eq!(step_of(&label_at(&browser, x + width / 2 - 4, y)), 89.0);

    let task = site.page(&format!("/runs/3/tasks/{}", Live::TASK.0));
    browser.open(&task);
    browser.wait("the log", "document.querySelector('#log').textContent.includes('live step 89')");
    site.change(async |store| Live::grow(store, 90..120).await);
    browser.wait("more of the log", "document.querySelector('#log').textContent.includes('live step 119')");
    browser.run("document.querySelector('.levels [value=info]').click()");
    let shown = "return [...document.querySelectorAll('#log li')].filter((li) => li.offsetHeight > 0).length";
    assert_eq!(browser.run(shown), json!(0), "the filter of the levels");

    browser.open(&site.page("/runs/3"));
    browser.wait("that it is live", "document.querySelector('#live').textContent.includes('live')");
    site.change(async |store| Live::end(store).await);
    browser.wait("the end", "document.querySelector('#head').dataset.live === 'no'");
    browser.wait("its state", "document.querySelector('#head .badge').textContent.includes('cancelled')");
    assert_eq!(browser.run("return document.querySelector('#live').textContent"), json!(""));
    site.is_content(&browser);
    // Several intervals later, no request has been sent.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let again: Vec<String> = browser.requests().into_iter().filter(|request| request.ends_with("/runs/3")).collect();
    assert_eq!(again, [] as [&str; 0]);
}

#[test]
fn runs_are_filtered_by_keyboard_and_the_address_keeps_it() {
    let (site, browser) = (Site::start(), Browser::start());
    browser.appear("light", 1280, 900);
    browser.open(&site.page("/runs?columns=state,seed"));
    browser.wait("the table", "document.querySelectorAll('table.runs tbody tr').length === 18");
    browser.press(&["/"]);
    browser.wait("the search", "document.activeElement.id === 'filter'");
    browser.press(&["s", "t", "a", "t", "e", "s", ">", "3", "2", ENTER]);
    // Those of the two sweeps and of the claims.
    browser.wait("fewer runs", "document.querySelectorAll('table.runs tbody tr').length === 3");
    let query = "return ['filter', 'columns'].map((key) => new URLSearchParams(location.search).get(key))";
    assert_eq!(browser.run(query), json!(["states>32", "state,seed"]));
    browser.run("document.querySelector('#column-choice summary').click()");
    let seed = "[...document.querySelectorAll('.choice')].find((e) => e.textContent.startsWith('✓ seed'))";
    browser.wait("the choice", seed);
    browser.run(&format!("{seed}.click()"));
    browser.wait("no column of seeds", "new URLSearchParams(location.search).get('columns') === 'state'");
    assert_eq!(browser.run(query), json!(["states>32", "state"]));
    site.is_content(&browser);
}

#[test]
fn selected_runs_are_compared_and_their_curves_are_drawn_as_chosen() {
    let (site, browser) = (Site::start(), Browser::start());
    browser.appear("light", 1280, 900);
    browser.open(&site.page("/runs"));
    browser.wait("the table", "document.querySelectorAll('table.runs tbody tr').length === 18");
    for place in [16, 17] {
        browser.run(&format!("document.querySelectorAll('[name=of]')[{place}].focus()"));
        browser.press(&[" "]);
    }
    browser.run("document.querySelector('.selected button').click()");
    let compared = "location.pathname === '/compare' && document.querySelectorAll('.sides li').length === 2";
    browser.wait("the comparison", compared);
    assert_eq!(browser.run("return new URLSearchParams(location.search).getAll('of')"), json!(["2", "1"]));

    browser.open(&site.page(COMPARE));
    browser.wait("the curves", "document.querySelectorAll('#curves .curve-names button').length >= 7");
    let choose = |id: &str, value: &str| {
        browser.run(&format!(
            "const select = document.getElementById('{id}'); select.value = '{value}';
             select.dispatchEvent(new Event('change', {{bubbles: true}}))"
        ))
    };
    choose("c-smooth", "0.9");
    browser.wait("smoothing", "document.querySelector('#curves').dataset.smooth === '0.9'");
    choose("c-xscale", "log");
    choose("c-x", "time");
    browser.wait("time", "document.querySelector('#curves').dataset.x === 'time'");
    let query = "const query = new URLSearchParams(location.search);
        return [query.getAll('of').length, query.get('x'), query.get('xscale'), query.get('smooth')]";
    assert_eq!(browser.run(query), json!([3, "time", "log", "0.9"]));
    choose("c-x", "tokens");
    browser.wait("no curve", "document.querySelector('#curves').textContent === 'No curve of this metric by tokens.'");
    site.is_content(&browser);
}

#[test]
fn a_workflow_is_checked_while_it_is_written() {
    let (site, browser) = (Site::start(), Browser::start());
    browser.appear("light", 1280, 900);
    browser.open(&site.page("/editor?run=1"));
    browser.wait("the plan", "document.querySelector('#draft-plan')");
    browser.run("document.getElementById('source').focus(); document.getElementById('source').setSelectionRange(0, 4)");
    browser.press(&["n", "a", "n", "e"]);
    browser.wait(
        "the problem",
        "document.querySelector('#draft-problems') && document.querySelector('[data-line=\"1\"]')",
    );
    browser.run("document.querySelector('[data-line=\"1\"]').click()");
    let place = "return [document.activeElement.id, document.activeElement.selectionStart]";
    assert_eq!(browser.run(place), json!(["source", 0]));
    site.is_content(&browser);
}

#[test]
fn the_axes_of_a_sweep_can_be_chosen() {
    let (site, browser) = (Site::start(), Browser::start());
    let title = "document.querySelector('#sweep .axis-name.across').textContent";
    browser.appear("light", 1280, 900);
    browser.open(&site.page("/runs/1/sweep"));
    browser.wait("the heat map", HEAT_MAP);
    assert_eq!(browser.run(&format!("return {title}")), json!("states"));
    browser.run("window.same = true; document.getElementById('s-y').focus()");
    let choose = |id: &str, value: &str| {
        browser.run(&format!(
            "const select = document.getElementById('{id}'); select.value = '{value}';
             select.dispatchEvent(new Event('change', {{bubbles: true}}))"
        ))
    };
    choose("s-y", "states");
    choose("s-x", "chunk");
    browser.wait("the other axis", &format!("{title} === 'chunk'"));
    browser.wait("the table", "document.querySelector('#sweep-table th').textContent.includes('chunk')");
    assert_eq!(
        browser.run("return [window.same, new URLSearchParams(location.search).get('x')]"),
        json!([true, "chunk"])
    );

    choose("s-metric", "latency/median");
    browser.wait("the other metric", "document.querySelector('h1').textContent.includes('latency/median')");
    choose("s-y", "-");
    browser.wait("error bars", "document.querySelectorAll('#sweep .errorbar').length > 0");
    site.is_content(&browser);

    browser.open(&site.page("/runs/1/sweep"));
    browser.wait("the heat map", HEAT_MAP);
    let titles = "return [...document.querySelectorAll('#sweep .heat-cell title')].map((e) => e.textContent)";
    let titles = browser.run(titles).to_string();
    assert!(titles.contains("states = 32") && titles.contains("#1 ") && titles.contains("#2 "), "{titles}");
    browser.run("document.querySelector('#sweep .heat-cell').focus()");
    browser.press(&[ENTER]);
    browser.wait("the cell", "location.pathname.startsWith('/runs/1/cells/ten')");
    browser.run("document.querySelector('#replicates a.address').focus()");
    browser.press(&[ENTER]);
    browser.wait("a task of the cell", "location.pathname.startsWith('/runs/1/tasks/')");
}

#[test]
fn a_reader_without_a_mouse_or_without_scripts_is_served() {
    let (site, browser) = (Site::start(), Browser::start());
    browser.appear("light", 1280, 900);
    browser.open(&site.page("/runs/1"));
    browser.press(&[TAB]);
    let focused =
        "document.activeElement.className === 'skip' && document.activeElement.getBoundingClientRect().top >= 0";
    browser.wait("the link to the content", focused);
    browser.press(&[ENTER]);
    browser.wait("the content", "document.activeElement.id === 'main'");
    browser.run("document.querySelector('a.cell').focus()");
    browser.press(&[ENTER]);
    browser.wait("the task", "location.pathname === '/runs/1/tasks/0'");

    browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    browser.open(&site.page("/runs/1/sweep?x=chunk&y=states"));
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": false}));
    let table = browser.run("return document.querySelector('#sweep-table table').textContent").to_string();
    assert!(table.contains("±"), "{table}");
    let button = "return getComputedStyle(document.querySelector('.apply')).display !== 'none'";
    assert_eq!(browser.run(button), json!(true), "the button that sends the form");
}
