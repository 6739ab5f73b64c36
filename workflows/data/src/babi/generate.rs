//! Generates a story of each task. Stories about people, rooms and things come from [`World`]; the others are in `facts.rs` and `plans.rs`.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::world::{PEOPLE, ROOMS, THINGS, World, choose, pick};
use super::{Question, facts, plans, words_of};

/// The tasks are numbered from 1 to this.
pub const TASKS: u32 = 20;

/// The sentences of a story, the question, and the answer.
pub type Story = (Vec<String>, String, String);

/// A story of a task, which must be in `1..=TASKS`, with one question.
#[must_use]
pub fn story(task: u32, rng: &mut ChaCha8Rng) -> Question {
    let (lines, question, answer) = match task {
        1 => where_is(rng, |world, rng| world.add_random_event(false, rng)),
        2 => where_is_the_thing(rng),
        3 => where_was_the_thing(rng),
        4 => facts::directions(rng),
        5 => plans::gifts(rng),
        6 => is_in(rng),
        7 => how_many(rng),
        8 => what_is_carried(rng),
        9 => facts::negations(rng),
        10 => facts::alternatives(rng),
        11 => where_is(rng, |world, rng| {
            let person = rng.random_range(0..PEOPLE.len());
            world.walk(&[person], PEOPLE[person], rng);
            let pronoun = if person < 2 { "she" } else { "he" };
            let who = format!("{} {pronoun}", pick(rng, &["Then", "After that", "Following that", "Afterwards"]));
            world.walk(&[person], &who, rng);
        }),
        12 => where_is(rng, |world, rng| two_walk(world, rng, false)),
        13 => where_is(rng, |world, rng| two_walk(world, rng, true)),
        14 => facts::times(rng),
        15 => facts::fears(rng),
        16 => facts::colours(rng),
        17 => plans::positions(rng),
        18 => plans::sizes(rng),
        19 => plans::paths(rng),
        _ => plans::motives(rng),
    };
    let mut words: Vec<String> = lines.iter().flat_map(|line| words_of(line)).collect();
    words.extend(words_of(&question));
    Question { task, words, answer }
}

fn two_walk(world: &mut World, rng: &mut ChaCha8Rng, again: bool) {
    let pair = choose(rng, 2, PEOPLE.len());
    world.walk(&pair, &format!("{} and {}", PEOPLE[pair[0]], PEOPLE[pair[1]]), rng);
    if again {
        let who = format!("{} they", pick(rng, &["Then", "After that", "Following that", "Afterwards"]));
        world.walk(&pair, &who, rng);
    }
}

fn where_is(rng: &mut ChaCha8Rng, mut add_random_event: impl FnMut(&mut World, &mut ChaCha8Rng)) -> Story {
    let mut world = World::default();
    (0..rng.random_range(2..=6)).for_each(|_| add_random_event(&mut world, rng));
    let person = world.somebody(rng);
    let answer = world.room[person].map_or("", |room| ROOMS[room]);
    (world.lines, format!("Where is {}?", PEOPLE[person]), answer.into())
}

/// A world with events until some thing has been in at least `rooms` rooms; and that thing.
fn world_with_track(rooms: usize, rng: &mut ChaCha8Rng) -> (World, usize) {
    let (mut world, least) = (World::default(), rng.random_range(4..=12));
    loop {
        world.add_random_event(true, rng);
        let seen: Vec<usize> = (0..THINGS.len()).filter(|thing| world.track[*thing].len() >= rooms).collect();
        if world.lines.len() >= least && !seen.is_empty() {
            return (world, pick(rng, &seen));
        }
    }
}

fn where_is_the_thing(rng: &mut ChaCha8Rng) -> Story {
    let (world, thing) = world_with_track(1, rng);
    let answer = world.track[thing].last().map_or("", |room| ROOMS[*room]);
    (world.lines, format!("Where is the {}?", THINGS[thing]), answer.into())
}

fn where_was_the_thing(rng: &mut ChaCha8Rng) -> Story {
    loop {
        let (world, thing) = world_with_track(2, rng);
        let [.., before, last] = world.track[thing].as_slice() else { continue };
        // A question about a room that the thing was in twice would have two answers.
        if world.track[thing].iter().filter(|room| *room == last).count() == 1 {
            let (before, last) = (ROOMS[*before], ROOMS[*last]);
            return (world.lines, format!("Where was the {} before the {last}?", THINGS[thing]), before.into());
        }
    }
}

fn is_in(rng: &mut ChaCha8Rng) -> Story {
    let mut world = World::default();
    (0..rng.random_range(2..=8)).for_each(|_| world.add_random_event(false, rng));
    let person = world.somebody(rng);
    let room = world.room[person].unwrap_or(0);
    let other = (room + rng.random_range(1..ROOMS.len())) % ROOMS.len();
    let (asked, answer) = if rng.random_range(0..2) == 0 { (room, "yes") } else { (other, "no") };
    (world.lines, format!("Is {} in the {}?", PEOPLE[person], ROOMS[asked]), answer.into())
}

/// A world with things, and a person who has walked in it.
fn world_with_things(rng: &mut ChaCha8Rng) -> (World, usize) {
    let mut world = World::default();
    (0..rng.random_range(4..=12)).for_each(|_| world.add_random_event(true, rng));
    // Most people carry nothing: half of the questions are about those who do.
    let carriers: Vec<usize> = (0..PEOPLE.len()).filter(|person| !world.carried[*person].is_empty()).collect();
    let asked =
        if carriers.is_empty() || rng.random_range(0..4) == 0 { world.somebody(rng) } else { pick(rng, &carriers) };
    (world, asked)
}

fn how_many(rng: &mut ChaCha8Rng) -> Story {
    let (world, person) = world_with_things(rng);
    let answer = ["none", "one", "two", "three"][world.carried[person].len()];
    (world.lines, format!("How many objects is {} carrying?", PEOPLE[person]), answer.into())
}

fn what_is_carried(rng: &mut ChaCha8Rng) -> Story {
    let (world, person) = world_with_things(rng);
    let things: Vec<&str> = world.carried[person].iter().map(|thing| THINGS[*thing]).collect();
    let answer = if things.is_empty() { "nothing".into() } else { things.join(",") };
    (world.lines, format!("What is {} carrying?", PEOPLE[person]), answer)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::babi::solver;

    #[test]
    fn a_pupil_who_reads_each_story_finds_its_answer() {
        for task in 1..=TASKS {
            let mut rng = ChaCha8Rng::seed_from_u64(u64::from(task));
            let mut answers: BTreeMap<String, usize> = BTreeMap::new();
            for index in 0..500 {
                let Question { words, answer, .. } = story(task, &mut rng);
                assert_eq!(solver::answer(task, &words), answer, "task {task}, story {index}: {}", words.join(" "));
                *answers.entry(answer).or_default() += 1;
            }
            // Always giving one answer must not score well.
            let commonest = answers.values().max().copied().unwrap_or(0);
            assert!(answers.len() >= 2 && commonest <= 350, "task {task}: {answers:?}");
        }
    }

    #[test]
    fn the_same_seed_tells_the_same_story() {
        let told = |seed| story(2, &mut ChaCha8Rng::seed_from_u64(seed));
        assert_eq!(told(5), told(5));
        assert_ne!(told(5), told(6));
    }
}
