//! Stories that need a small model for their solution: gifts (task 5), positions (17), sizes (18), paths (19), motives (20).

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::facts::DIRECTIONS;
use super::generate::Story;
use super::world::{PEOPLE, ROOMS, THINGS, choose, pick};

pub fn gifts(rng: &mut ChaCha8Rng) -> Story {
    let mut lines = Vec::new();
    let mut last: Vec<(usize, usize, usize)> = Vec::new();
    let verbs = ["gave", "handed", "passed"];
    for _ in 0..rng.random_range(1..=4) {
        let thing = rng.random_range(0..THINGS.len());
        // The owner gives the thing away; if nobody owns it, somebody takes it first.
        let giver = match last.iter().rev().find(|gift| gift.2 == thing) {
            Some(gift) => gift.1,
            None => {
                let giver = rng.random_range(0..PEOPLE.len());
                lines.push(format!("{} got the {}.", PEOPLE[giver], THINGS[thing]));
                giver
            }
        };
        let taker = (giver + rng.random_range(1..PEOPLE.len())) % PEOPLE.len();
        lines.push(format!("{} {} the {} to {}.", PEOPLE[giver], pick(rng, &verbs), THINGS[thing], PEOPLE[taker]));
        last.push((giver, taker, thing));
    }
    // Every form of the question is about the last gift.
    let (giver, taker, thing) = last.last().copied().unwrap_or((0, 1, 0));
    let (giver, taker, thing) = (PEOPLE[giver], PEOPLE[taker], THINGS[thing]);
    let (question, answer) = match rng.random_range(0..5) {
        0 => (format!("Who gave the {thing} to {taker}?"), giver),
        1 => (format!("Who did {giver} give the {thing} to?"), taker),
        2 => (format!("What did {giver} give to {taker}?"), thing),
        3 => (format!("Who received the {thing}?"), taker),
        _ => (format!("Who gave the {thing}?"), giver),
    };
    (lines, question, answer.to_lowercase())
}

const SHAPES: [&str; 5] = ["triangle", "red square", "blue square", "pink rectangle", "yellow sphere"];
/// A relation in words, and the position of the first thing relative to the second: right and up are positive.
const RELATIONS: [(&str, (i32, i32)); 4] =
    [("to the left of", (-1, 0)), ("to the right of", (1, 0)), ("above", (0, 1)), ("below", (0, -1))];

pub fn positions(rng: &mut ChaCha8Rng) -> Story {
    let shapes = choose(rng, 3, SHAPES.len());
    let [first, middle, last] = [shapes[0], shapes[1], shapes[2]].map(|shape| SHAPES[shape]);
    // Opposite directions would place the first on the last.
    let (one, other) = loop {
        let (one, other) = (pick(rng, &RELATIONS), pick(rng, &RELATIONS));
        if (one.1.0 + other.1.0, one.1.1 + other.1.1) != (0, 0) {
            break (one, other);
        }
    };
    let (x, y) = (one.1.0 + other.1.0, one.1.1 + other.1.1);
    let lines =
        vec![format!("The {first} is {} the {middle}.", one.0), format!("The {middle} is {} the {last}.", other.0)];
    let (words, (dx, dy)) = pick(rng, &RELATIONS);
    // From the last to the first, or the other way round.
    let turned = rng.random_range(0..2) == 1;
    let (from, to, sign) = if turned { (last, first, -1) } else { (first, last, 1) };
    let holds = sign * (dx * x + dy * y) > 0;
    (lines, format!("Is the {from} {words} the {to}?"), if holds { "yes" } else { "no" }.into())
}

const BOXES: [&str; 5] = ["chocolate", "box of chocolates", "suitcase", "chest", "container"];

pub fn sizes(rng: &mut ChaCha8Rng) -> Story {
    // From the smallest to the largest.
    let order = choose(rng, BOXES.len(), BOXES.len());
    let mut lines: Vec<String> = Vec::new();
    for pair in order.windows(2) {
        let (small, large) = (BOXES[pair[0]], BOXES[pair[1]]);
        lines.push(match rng.random_range(0..2) {
            0 => format!("The {large} is bigger than the {small}."),
            _ => format!("The {small} fits inside the {large}."),
        });
    }
    let lines = choose(rng, lines.len(), lines.len()).into_iter().map(|at| lines[at].clone()).collect();
    let pair = choose(rng, 2, BOXES.len());
    let (one, other) = (BOXES[order[pair[0]]], BOXES[order[pair[1]]]);
    let (question, holds) = match rng.random_range(0..2) {
        0 => (format!("Does the {one} fit in the {other}?"), pair[0] < pair[1]),
        _ => (format!("Is the {one} bigger than the {other}?"), pair[0] > pair[1]),
    };
    (lines, question, if holds { "yes" } else { "no" }.into())
}

pub fn paths(rng: &mut ChaCha8Rng) -> Story {
    let step = |at: (i32, i32), direction: usize| {
        let (dx, dy) = [(0, 1), (1, 0), (0, -1), (-1, 0)][direction];
        (at.0 + dx, at.1 + dy)
    };
    // A tree of rooms on a grid: for each room except the first, the adjacent room and the direction from it.
    let rooms = choose(rng, 5, ROOMS.len());
    let mut places = vec![(0, 0)];
    let mut beside: Vec<(usize, usize)> = vec![(0, 0)];
    while places.len() < rooms.len() {
        let (from, direction) = (rng.random_range(0..places.len()), rng.random_range(0..4));
        let place = step(places[from], direction);
        if !places.contains(&place) {
            places.push(place);
            beside.push((from, direction));
        }
    }
    let tell = |room: usize| {
        let (from, direction) = beside[room];
        format!("The {} is {} of the {}.", ROOMS[rooms[room]], DIRECTIONS[direction], ROOMS[rooms[from]])
    };
    let lines = choose(rng, rooms.len() - 1, rooms.len() - 1).into_iter().map(|at| tell(at + 1)).collect();
    // Two steps in the tree: through a middle room with two neighbours. A tree has exactly one path.
    let mut ways: Vec<(usize, usize, usize)> = Vec::new();
    for (room, (from, direction)) in beside.iter().enumerate().skip(1) {
        ways.extend([(*from, *direction, room), (room, (direction + 2) % 4, *from)]);
    }
    let mut routes = Vec::new();
    for (from, first, middle) in &ways {
        let on = ways.iter().filter(|(start, _, end)| start == middle && end != from);
        routes.extend(on.map(|(_, second, to)| (*from, *to, *first, *second)));
    }
    let (from, to, first, second) = pick(rng, &routes);
    let answer = [first, second].map(|direction| &DIRECTIONS[direction][..1]).join(",");
    (lines, format!("How do you go from the {} to the {}?", ROOMS[rooms[from]], ROOMS[rooms[to]]), answer)
}

const CHARACTERS: [&str; 4] = ["Sumit", "Yann", "Antoine", "Jason"];
/// A state, the room with the remedy, and the thing that helps.
const STATES: [(&str, &str, &str); 4] = [
    ("hungry", "kitchen", "apple"),
    ("thirsty", "kitchen", "milk"),
    ("tired", "bedroom", "pajamas"),
    ("bored", "garden", "football"),
];

pub fn motives(rng: &mut ChaCha8Rng) -> Story {
    let people = choose(rng, 3, CHARACTERS.len());
    let states = choose(rng, 3, STATES.len());
    let mut lines = Vec::new();
    let mut stages = Vec::new();
    for (person, state) in people.iter().zip(&states) {
        let (who, (feels, room, thing)) = (CHARACTERS[*person], STATES[*state]);
        let stage = rng.random_range(0..3);
        lines.push(format!("{who} is {feels}."));
        if stage > 0 {
            lines.push(format!("{who} went to the {room}."));
        }
        if stage > 1 {
            lines.push(format!("{who} got the {thing}."));
        }
        stages.push(stage);
    }
    let asked = rng.random_range(0..people.len());
    let (who, (feels, room, thing)) = (CHARACTERS[people[asked]], STATES[states[asked]]);
    let (question, answer) = match stages[asked] {
        0 => (format!("Where will {who} go?"), room),
        1 => (format!("Why did {who} go to the {room}?"), feels),
        _ => (format!("Why did {who} get the {thing}?"), feels),
    };
    (lines, question, answer.into())
}
