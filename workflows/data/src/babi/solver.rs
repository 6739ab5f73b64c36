//! The oracle of the generator's tests: it reads only a story's words and shares no code with the generator.

use std::collections::HashMap;

type Words<'a> = Vec<&'a str>;

/// The answer to a question, from its words alone.
pub fn answer(task: u32, words: &[String]) -> String {
    let all: Words = words.iter().map(String::as_str).collect();
    let mut sentences: Vec<Words> = all.split(|word| matches!(*word, "." | "?")).map(<[_]>::to_vec).collect();
    assert_eq!(sentences.pop(), Some(vec![]), "a question ends the words");
    let question = sentences.pop().unwrap();
    match task {
        4 => direction(&sentences, &question),
        5 => gift(&sentences, &question),
        9 | 10 => place(&sentences, &question),
        14 => time(&sentences, &question),
        15 => fear(&sentences, &question),
        16 => colour(&sentences, &question),
        17 => position(&sentences, &question),
        18 => size(&sentences, &question),
        19 => path(&sentences, &question),
        20 => motive(&sentences, &question),
        _ => walkers(&sentences, &question),
    }
}

fn last<'a>(words: &[&'a str]) -> &'a str {
    words[words.len() - 1]
}

#[derive(Default)]
struct House<'a> {
    room: HashMap<&'a str, &'a str>,
    hands: HashMap<&'a str, Words<'a>>,
    track: HashMap<&'a str, Words<'a>>,
}

fn walkers(sentences: &[Words], question: &[&str]) -> String {
    let mut house = House::default();
    let mut before: Words = Vec::new();
    for sentence in sentences {
        let skip = ["then", "after", "that", "following", "afterwards"];
        let sentence: Words = sentence.iter().copied().skip_while(|word| skip.contains(word)).collect();
        let people = match sentence[..2] {
            ["she" | "he" | "they", _] => before.clone(),
            [one, "and"] => vec![one, sentence[2]],
            [one, _] => vec![one],
            _ => panic!("{sentence:?}"),
        };
        let what = last(&sentence);
        if sentence.contains(&"to") {
            for person in &people {
                house.room.insert(person, what);
                for thing in house.hands.get(person).into_iter().flatten() {
                    house.track.entry(thing).or_default().push(what);
                }
            }
        } else if ["got", "took", "grabbed", "picked"].iter().any(|verb| sentence.contains(verb)) {
            let room = house.room[people[0]];
            house.hands.entry(people[0]).or_default().push(what);
            let track = house.track.entry(what).or_default();
            if track.last() != Some(&room) {
                track.push(room);
            }
        } else {
            house.hands.get_mut(people[0]).unwrap().retain(|thing| *thing != what);
        }
        before = people;
    }
    match question {
        ["where", "is", "the", thing] => last(&house.track[thing]).into(),
        ["where", "is", person] => house.room[person].into(),
        ["where", "was", "the", thing, "before", "the", room] => {
            let track = &house.track[thing];
            let at = track.iter().rposition(|place| place == room).unwrap();
            track[at - 1].into()
        }
        ["is", person, "in", "the", room] => yes(house.room[person] == *room),
        ["how", "many", .., person, "carrying"] => {
            ["none", "one", "two", "three"][house.hands.get(person).map_or(0, Vec::len)].into()
        }
        ["what", "is", person, "carrying"] => match house.hands.get(person).filter(|things| !things.is_empty()) {
            None => "nothing".into(),
            Some(things) => things.join(","),
        },
        other => panic!("{other:?}"),
    }
}

fn yes(holds: bool) -> String {
    if holds { "yes" } else { "no" }.into()
}

/// Every fact is read in both directions, and the answer must be the only one.
fn direction(sentences: &[Words], question: &[&str]) -> String {
    let back = |toward: &str| match toward {
        "north" => "south",
        "south" => "north",
        "east" => "west",
        _ => "east",
    };
    let facts = sentences.iter().flat_map(|words| {
        let (one, toward, other) = (words[1], words[3], words[6]);
        [(one, toward, other), (other, back(toward), one)]
    });
    let fits = |(one, toward, other): (&str, &str, &str)| match question {
        ["what", "is", "the", room, asked, "of"] => (one == *room && toward == *asked).then(|| other.to_owned()),
        ["what", "is", asked, "of", "the", room] => (other == *room && toward == *asked).then(|| one.to_owned()),
        other => panic!("{other:?}"),
    };
    let found: Vec<String> = facts.filter_map(fits).collect();
    assert_eq!(found.len(), 1, "one answer of {found:?}");
    found[0].clone()
}

fn gift(sentences: &[Words], question: &[&str]) -> String {
    let gifts = sentences.iter().filter(|words| words.len() == 6).map(|words| (words[0], words[3], words[5]));
    let fits = |(giver, thing, taker): (&str, &str, &str)| match question {
        ["who", "gave", "the", what, "to", who] => (thing == *what && taker == *who).then(|| giver.to_owned()),
        ["who", "did", who, "give", "the", what, "to"] => (thing == *what && giver == *who).then(|| taker.to_owned()),
        ["what", "did", one, "give", "to", other] => (giver == *one && taker == *other).then(|| thing.to_owned()),
        ["who", "received", "the", what] => (thing == *what).then(|| taker.to_owned()),
        ["who", "gave", "the", what] => (thing == *what).then(|| giver.to_owned()),
        other => panic!("{other:?}"),
    };
    gifts.filter_map(fits).last().unwrap()
}

fn place(sentences: &[Words], question: &[&str]) -> String {
    let [_, who, _, _, room] = question else { panic!("{question:?}") };
    let told = sentences.iter().rfind(|words| words[0] == *who).unwrap();
    if told.contains(&"either") {
        return if told.contains(room) { "maybe" } else { "no" }.into();
    }
    yes(last(told) == *room && !told.contains(&"no") && !told.contains(&"not"))
}

fn time(sentences: &[Words], question: &[&str]) -> String {
    let [_, _, who, _, _, room] = question else { panic!("{question:?}") };
    let order = ["yesterday", "morning", "afternoon", "evening"];
    let mut visits: Vec<(usize, &str)> = Vec::new();
    for words in sentences.iter().filter(|words| words.contains(who)) {
        let at = order.iter().position(|time| words[..2].contains(time)).unwrap();
        visits.push((at, last(words)));
    }
    visits.sort_unstable();
    let at = visits.iter().position(|(_, place)| place == room).unwrap();
    visits[at - 1].1.into()
}

fn fear(sentences: &[Words], question: &[&str]) -> String {
    let one_of = |many: &str| match many {
        "mice" => "mouse".to_owned(),
        "wolves" => "wolf".to_owned(),
        "sheep" => "sheep".to_owned(),
        many => many.trim_end_matches('s').to_owned(),
    };
    let kind = last(sentences.iter().find(|words| words[0] == question[2]).unwrap());
    let fear = sentences.iter().find(|words| words[1] == "are" && one_of(words[0]) == kind).unwrap();
    one_of(last(fear))
}

fn colour(sentences: &[Words], question: &[&str]) -> String {
    let kind = |who: &str| sentences.iter().find(|words| words[0] == who && words.len() == 4).map(|words| words[3]);
    let mine = kind(last(question));
    let shown = sentences.iter().find(|words| words.len() == 3 && kind(words[0]) == mine).unwrap();
    last(shown).into()
}

fn position(sentences: &[Words], question: &[&str]) -> String {
    let offset = |words: &[&str]| match words {
        w if w.contains(&"left") => (-1, 0),
        w if w.contains(&"right") => (1, 0),
        w if w.contains(&"above") => (0, 1),
        _ => (0, -1),
    };
    let (first, second) = (offset(&sentences[0]), offset(&sentences[1]));
    let (x, y) = (first.0 + second.0, first.1 + second.1);
    let start = sentences[0][1..].iter().take_while(|word| **word != "is").copied().collect::<Words>();
    let forward = question[2..].starts_with(&start);
    let (dx, dy) = offset(question);
    let along = dx * x + dy * y;
    yes(if forward { along > 0 } else { along < 0 })
}

fn size(sentences: &[Words], question: &[&str]) -> String {
    let split = |words: &[&str], at: &str| {
        let at = words.iter().position(|word| *word == at).unwrap();
        let name = |words: &[&str]| {
            words
                .iter()
                .filter(|w| !["the", "is", "than", "inside", "in", "does"].contains(w))
                .copied()
                .collect::<Vec<_>>()
                .join(" ")
        };
        (name(&words[..at]), name(&words[at + 1..]))
    };
    let mut bigger: Vec<(String, String)> = Vec::new();
    for words in sentences {
        bigger.push(match words.contains(&"bigger") {
            true => split(words, "bigger"),
            false => {
                let (small, large) = split(words, "fits");
                (large, small)
            }
        });
    }
    let (large, small) = match question.contains(&"bigger") {
        true => split(question, "bigger"),
        false => {
            let (small, large) = split(question, "fit");
            (large, small)
        }
    };
    let mut reached = vec![large];
    while let Some(next) = bigger.iter().find(|(a, b)| reached.contains(a) && !reached.contains(b)) {
        reached.push(next.1.clone());
    }
    yes(reached[1..].contains(&small))
}

fn path(sentences: &[Words], question: &[&str]) -> String {
    let opposite = |toward: &str| match toward {
        "north" => "s",
        "south" => "n",
        "east" => "w",
        _ => "e",
    };
    let mut ways: Vec<(&str, &str, &str)> = Vec::new();
    for words in sentences {
        let (one, toward, other) = (words[1], words[3], words[6]);
        ways.push((other, &toward[..1], one));
        ways.push((one, opposite(toward), other));
    }
    let (from, to) = (question[6], last(question));
    let two = ways
        .iter()
        .filter(|way| way.0 == from)
        .flat_map(|way| ways.iter().filter(move |next| next.0 == way.2).map(move |next| (way.1, next.1, next.2)));
    let found: Vec<_> = two.filter(|(_, _, end)| *end == to).collect();
    assert_eq!(found.len(), 1, "one way");
    format!("{},{}", found[0].0, found[0].1)
}

fn motive(sentences: &[Words], question: &[&str]) -> String {
    let who = question[2];
    let feels = last(sentences.iter().find(|words| words[0] == who && words[1] == "is").unwrap());
    if question[0] == "why" {
        return feels.into();
    }
    match feels {
        "hungry" | "thirsty" => "kitchen",
        "tired" => "bedroom",
        _ => "garden",
    }
    .into()
}
