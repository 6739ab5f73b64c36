//! Stories that are lists of facts: directions (task 4), negations (9), alternatives (10), times (14), fears (15), colours (16).

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::generate::Story;
use super::world::{PEOPLE, ROOMS, choose, pick};

/// The four directions with their opposites at the same index of the other half.
pub const DIRECTIONS: [&str; 4] = ["north", "east", "south", "west"];

/// The opposite direction.
fn opposite_direction(direction: &str) -> &'static str {
    let at = DIRECTIONS.iter().position(|known| *known == direction).unwrap_or(0);
    DIRECTIONS[(at + 2) % DIRECTIONS.len()]
}

pub fn directions(rng: &mut ChaCha8Rng) -> Story {
    let rooms = choose(rng, 3, ROOMS.len());
    let [first, middle, last] = [rooms[0], rooms[1], rooms[2]].map(|room| ROOMS[room]);
    let one = pick(rng, &DIRECTIONS);
    // With opposite directions, the first and the last room would both be in one direction of the middle room, and a question would
    // have two answers.
    let other = loop {
        let other = pick(rng, &DIRECTIONS);
        if other != opposite_direction(one) {
            break other;
        }
    };
    let mut lines =
        vec![format!("The {first} is {one} of the {middle}."), format!("The {middle} is {other} of the {last}.")];
    if rng.random_range(0..2) == 0 {
        lines.reverse();
    }
    let (question, answer) = match rng.random_range(0..4) {
        0 => (format!("What is {one} of the {middle}?"), first),
        1 => (format!("What is the {first} {one} of?"), middle),
        2 => (format!("What is {other} of the {last}?"), middle),
        _ => (format!("What is the {middle} {other} of?"), last),
    };
    (lines, question, answer.into())
}

/// What is known about a person's place.
#[derive(Clone, Copy)]
enum Known {
    In(usize),
    NotIn(usize),
    Either(usize, usize),
}

/// States `count` facts; each person is where the last fact about them states.
fn random_places(
    rng: &mut ChaCha8Rng,
    random_fact: fn(usize, &mut ChaCha8Rng) -> (String, Known),
) -> (Vec<String>, usize, Known) {
    let mut known = [None; PEOPLE.len()];
    let mut lines = Vec::new();
    let mut last = 0;
    for _ in 0..rng.random_range(2..=6) {
        last = rng.random_range(0..PEOPLE.len());
        let (line, fact) = random_fact(last, rng);
        known[last] = Some(fact);
        lines.push(line);
    }
    let told: Vec<usize> = (0..PEOPLE.len()).filter(|person| known[*person].is_some()).collect();
    let person = pick(rng, &told);
    let fact = known[person].or(known[last]).unwrap_or(Known::In(0));
    (lines, person, fact)
}

pub fn negations(rng: &mut ChaCha8Rng) -> Story {
    let (lines, person, known) = random_places(rng, |person, rng| {
        let (who, room) = (PEOPLE[person], rng.random_range(0..ROOMS.len()));
        let there = ROOMS[room];
        match rng.random_range(0..4) {
            0 => (format!("{who} is no longer in the {there}."), Known::NotIn(room)),
            1 => (format!("{who} is not in the {there}."), Known::NotIn(room)),
            2 => (format!("{who} is in the {there}."), Known::In(room)),
            _ => (format!("{who} went to the {there}."), Known::In(room)),
        }
    });
    let other = |room: usize, rng: &mut ChaCha8Rng| (room + rng.random_range(1..ROOMS.len())) % ROOMS.len();
    let (asked, answer) = match known {
        Known::NotIn(room) | Known::Either(room, _) => (room, "no"),
        Known::In(room) if rng.random_range(0..3) > 0 => (room, "yes"),
        Known::In(room) => (other(room, rng), "no"),
    };
    (lines, format!("Is {} in the {}?", PEOPLE[person], ROOMS[asked]), answer.into())
}

pub fn alternatives(rng: &mut ChaCha8Rng) -> Story {
    let (lines, person, known) = random_places(rng, |person, rng| {
        let (who, rooms) = (PEOPLE[person], choose(rng, 2, ROOMS.len()));
        let (one, two) = (rooms[0], rooms[1]);
        match rng.random_range(0..2) {
            0 => (format!("{who} is either in the {} or the {}.", ROOMS[one], ROOMS[two]), Known::Either(one, two)),
            _ => (format!("{who} is in the {}.", ROOMS[one]), Known::In(one)),
        }
    });
    let asked = match (known, rng.random_range(0..3)) {
        (Known::In(room) | Known::Either(room, _), 0) | (Known::Either(_, room), 1) => room,
        _ => rng.random_range(0..ROOMS.len()),
    };
    let answer = match known {
        Known::In(room) if room == asked => "yes",
        Known::Either(one, two) if asked == one || asked == two => "maybe",
        _ => "no",
    };
    (lines, format!("Is {} in the {}?", PEOPLE[person], ROOMS[asked]), answer.into())
}

const TIMES: [&str; 4] = ["Yesterday", "This morning", "This afternoon", "This evening"];

pub fn times(rng: &mut ChaCha8Rng) -> Story {
    let people = choose(rng, 2, PEOPLE.len());
    let mut lines = Vec::new();
    let rooms: Vec<Vec<usize>> = people.iter().map(|_| choose(rng, TIMES.len(), ROOMS.len())).collect();
    for (person, rooms) in people.iter().zip(&rooms) {
        for (time, room) in TIMES.iter().zip(rooms) {
            lines.push(format!("{time} {} went to the {}.", PEOPLE[*person], ROOMS[*room]));
        }
    }
    let lines: Vec<String> = choose(rng, lines.len(), lines.len()).into_iter().map(|at| lines[at].clone()).collect();
    let (who, time) = (rng.random_range(0..people.len()), rng.random_range(1..TIMES.len()));
    let (room, before) = (ROOMS[rooms[who][time]], ROOMS[rooms[who][time - 1]]);
    (lines, format!("Where was {} before the {room}?", PEOPLE[people[who]]), before.into())
}

/// Kinds of animals, singular and plural.
const KINDS: [(&str, &str); 4] = [("mouse", "mice"), ("sheep", "sheep"), ("cat", "cats"), ("wolf", "wolves")];
const NAMES: [&str; 4] = ["Gertrude", "Winona", "Jessica", "Emily"];

pub fn fears(rng: &mut ChaCha8Rng) -> Story {
    let feared: Vec<usize> =
        (0..KINDS.len()).map(|kind| (kind + rng.random_range(1..KINDS.len())) % KINDS.len()).collect();
    let kinds: Vec<usize> = NAMES.iter().map(|_| rng.random_range(0..KINDS.len())).collect();
    let fear = |(kind, of): (usize, &usize)| format!("{} are afraid of {}.", KINDS[kind].1, KINDS[*of].1);
    let is = |(name, kind): (&&str, &usize)| format!("{name} is a {}.", KINDS[*kind].0);
    let lines: Vec<String> = feared.iter().enumerate().map(fear).chain(NAMES.iter().zip(&kinds).map(is)).collect();
    let order = choose(rng, lines.len(), lines.len());
    let asked = rng.random_range(0..NAMES.len());
    let lines = order.into_iter().map(|at| lines[at].clone()).collect();
    (lines, format!("What is {} afraid of?", NAMES[asked]), KINDS[feared[kinds[asked]]].0.into())
}

const ANIMALS: [&str; 4] = ["swan", "frog", "lion", "rhino"];
const COLOURS: [&str; 4] = ["white", "green", "yellow", "gray"];
const OWNERS: [&str; 5] = ["Lily", "Bernhard", "Greg", "Julius", "Brian"];

pub fn colours(rng: &mut ChaCha8Rng) -> Story {
    let colour = choose(rng, ANIMALS.len(), COLOURS.len());
    let mut kinds: Vec<usize> = OWNERS[1..].iter().map(|_| rng.random_range(0..ANIMALS.len())).collect();
    // The question is about an animal whose kind's colour is shown by another animal.
    let known = pick(rng, &kinds);
    kinds.insert(0, known);
    let names = choose(rng, OWNERS.len(), OWNERS.len());
    let mut lines = Vec::new();
    for (at, (name, kind)) in names.iter().zip(&kinds).enumerate() {
        lines.push(format!("{} is a {}.", OWNERS[*name], ANIMALS[*kind]));
        if at > 0 {
            lines.push(format!("{} is {}.", OWNERS[*name], COLOURS[colour[*kind]]));
        }
    }
    let order = choose(rng, lines.len(), lines.len());
    let lines = order.into_iter().map(|at| lines[at].clone()).collect();
    (lines, format!("What color is {}?", OWNERS[names[0]]), COLOURS[colour[known]].into())
}
