//! Pathfinder (Linsley et al. 2018, "Learning long-range spatial dependencies with horizontal gated recurrent units", section 3; as a
//! task of Long Range Arena: Tay et al. 2021): an image with two dots and several dashed paths. Are the dots the ends of one path?
//!
//! ```text
//! path(n)    n dashes; each turns from the one before by an angle that is uniform on -bend..=bend
//! image      two paths of `dashes` dashes, and `distractors` paths of `dashes / 3`, at least 2
//! connected      both dots are on the ends of one long path
//! not connected  each of the long paths has a dot on one end
//! ```
//!
//! The distance between two paths is at least the gap between two dashes plus 3.2 pixels, so that an image has one answer: starting
//! at a dot and never jumping farther than a gap, one stays on its path. Both answers are equally likely, and images of both kinds
//! contain the same paths. The published images are made by other code; the parameters have the published meanings.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::DataError;

/// How often a path that does not fit is drawn again before the image is restarted.
const TRIES: usize = 200;
/// How often an image is restarted.
const IMAGES: usize = 2000;
/// The minimum distance of paths beyond a gap, in pixels: the widths of two dashes, and what the pixel grid adds to a gap.
const MARGIN: f64 = 3.2;
/// The minimum distance of a path from itself, in pixels: its dashes do not touch.
const SELF_MARGIN: f64 = 2.5;
/// Half of the width of a dash, in pixels.
const HALF_WIDTH: f64 = 0.75;

/// The parameters of an image. Lengths are in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scene {
    /// Width and height of the image.
    pub side: usize,
    /// Dashes of the long paths.
    pub dashes: usize,
    /// Number of short paths.
    pub distractors: usize,
    /// Length of a dash.
    pub dash: f64,
    /// Distance between two dashes of a path.
    pub gap: f64,
    /// The maximum turn from one dash to the next, in degrees.
    pub bend: f64,
}

/// An image and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawing {
    /// The brightness of each pixel, row by row.
    pub pixels: Vec<u8>,
    /// Whether one path connects the dots.
    pub connected: bool,
}

type Point = (f64, f64);

/// A path: the two ends of each dash, in order.
type Path = Vec<[Point; 2]>;

impl Scene {
    /// How many distractors fit on most images: 3, or 1 if two long paths fill a small image.
    #[must_use]
    pub fn usual_distractors(side: usize, dashes: usize) -> usize {
        if side < 64 && dashes > 9 { 1 } else { 3 }
    }

    /// Radius of a dot in pixels.
    #[must_use]
    pub fn dot(&self) -> f64 {
        (self.side as f64 / 42.0).clamp(1.5, 4.0)
    }

    /// The minimum distance of two paths.
    fn margin(&self) -> f64 {
        self.gap + MARGIN
    }

    /// Draws an image.
    ///
    /// # Errors
    /// If the paths do not fit.
    pub fn draw(&self, rng: &mut ChaCha8Rng) -> Result<Drawing, DataError> {
        let connected = rng.random_range(0..2) == 1;
        for _ in 0..IMAGES {
            if let Some(paths) = self.place(rng) {
                return Ok(Drawing { pixels: self.render(&paths, connected), connected });
            }
        }
        Err(DataError::new(
            format!(
                "two paths of {} dashes and {} distractors do not fit on {} x {} pixels",
                self.dashes, self.distractors, self.side, self.side
            ),
            "ask for fewer or shorter dashes, smaller gaps, fewer distractors or a larger side",
        ))
    }

    /// The two long paths, then the short ones; `None` if they did not fit.
    fn place(&self, rng: &mut ChaCha8Rng) -> Option<Vec<Path>> {
        let mut taken = vec![false; self.side * self.side];
        let mut paths: Vec<Path> = Vec::new();
        for index in 0..2 + self.distractors {
            let count = if index < 2 { self.dashes } else { (self.dashes / 3).max(2) };
            let path = (0..TRIES).find_map(|_| self.path(count, &taken, rng))?;
            // A dot may be on either end of a long path, and is wider than a dash.
            let ends = [path.first()?[0], path.last()?[1]];
            let long: Vec<Point> = paths.iter().take(2).flatten().flat_map(|dash| along(dash[0], dash[1])).collect();
            let near = |end: &Point| long.iter().any(|point| distance(*point, *end) < self.margin() + self.dot());
            if index < 2 && ends.iter().any(near) {
                return None;
            }
            path.iter()
                .flat_map(|dash| along(dash[0], dash[1]))
                .for_each(|point| self.mark_near(&mut taken, point, self.margin()));
            if index < 2 {
                ends.iter().for_each(|end| self.mark_near(&mut taken, *end, self.margin() + self.dot()));
            }
            paths.push(path);
        }
        Some(paths)
    }

    /// A path that stays inside the image, and away from the existing paths and from itself.
    fn path(&self, count: usize, taken: &[bool], rng: &mut ChaCha8Rng) -> Option<Path> {
        let side = self.side as f64;
        let mut at = (rng.random_range(0.0..side), rng.random_range(0.0..side));
        let mut angle = rng.random_range(0.0..std::f64::consts::TAU);
        let (mut path, mut points): (Path, Vec<Vec<Point>>) = (Vec::new(), Vec::new());
        while path.len() < count {
            let (dash, turned) = (0..6).find_map(|_| {
                let turned =
                    if path.is_empty() { angle } else { angle + rng.random_range(-1.0..=1.0) * self.bend.to_radians() };
                let from = if path.is_empty() { at } else { step(at, turned, self.gap) };
                let to = step(from, turned, self.dash);
                // The two preceding dashes may be nearer.
                let earlier = &points[..points.len().saturating_sub(2)];
                let fits = |point: &Point| {
                    let near = earlier.iter().flatten().any(|other| distance(*point, *other) < SELF_MARGIN);
                    self.is_free(taken, *point) && !near
                };
                along(from, to).iter().all(fits).then_some(([from, to], turned))
            })?;
            points.push(along(dash[0], dash[1]));
            (at, angle) = (dash[1], turned);
            path.push(dash);
        }
        Some(path)
    }

    fn is_free(&self, taken: &[bool], (x, y): Point) -> bool {
        let edge = self.dot() + 0.5;
        let inside = |value: f64| value >= edge && value <= self.side as f64 - 1.0 - edge;
        inside(x) && inside(y) && !taken[y.round() as usize * self.side + x.round() as usize]
    }

    fn mark_near(&self, taken: &mut [bool], centre: Point, reach: f64) {
        for (column, row) in self.pixels_near(centre, reach) {
            taken[row * self.side + column] |= distance(centre, (column as f64, row as f64)) <= reach;
        }
    }

    /// The pixels of the square around a point, as column and row.
    fn pixels_near(&self, (x, y): Point, reach: f64) -> impl Iterator<Item = (usize, usize)> {
        let range = |value: f64| {
            let low = (value - reach).floor().max(0.0) as usize;
            low..=((value + reach).ceil().max(0.0) as usize).min(self.side - 1)
        };
        let columns = range(x);
        range(y).flat_map(move |row| columns.clone().map(move |column| (column, row)))
    }

    fn render(&self, paths: &[Path], connected: bool) -> Vec<u8> {
        let mut light = vec![0.0_f64; self.side * self.side];
        for [from, to] in paths.iter().flatten() {
            let middle = ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0);
            for (column, row) in self.pixels_near(middle, self.dash / 2.0 + 2.0) {
                let off = distance_to_dash((column as f64, row as f64), *from, *to);
                brighten(&mut light[row * self.side + column], HALF_WIDTH + 0.5 - off);
            }
        }
        let first = |path: usize| paths.get(path).and_then(|path| path.first()).map_or((0.0, 0.0), |dash| dash[0]);
        let last = |path: usize| paths.get(path).and_then(|path| path.last()).map_or((0.0, 0.0), |dash| dash[1]);
        for dot in [first(0), if connected { last(0) } else { first(1) }] {
            for (column, row) in self.pixels_near(dot, self.dot() + 1.0) {
                let off = distance(dot, (column as f64, row as f64));
                brighten(&mut light[row * self.side + column], self.dot() + 0.5 - off);
            }
        }
        light.into_iter().map(|light| (light * 255.0).round() as u8).collect()
    }
}

fn brighten(pixel: &mut f64, light: f64) {
    *pixel = pixel.max(light.clamp(0.0, 1.0));
}

fn step((x, y): Point, angle: f64, length: f64) -> Point {
    (x + length * angle.cos(), y + length * angle.sin())
}

fn distance(one: Point, other: Point) -> f64 {
    (one.0 - other.0).hypot(one.1 - other.1)
}

/// Points of a dash, at most half a pixel apart.
fn along(from: Point, to: Point) -> Vec<Point> {
    let count = (2.0 * distance(from, to)).ceil().max(1.0) as usize;
    let point = |at: usize| {
        let part = at as f64 / count as f64;
        (from.0 + part * (to.0 - from.0), from.1 + part * (to.1 - from.1))
    };
    (0..=count).map(point).collect()
}

fn distance_to_dash(point: Point, from: Point, to: Point) -> f64 {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let part = ((point.0 - from.0) * dx + (point.1 - from.1) * dy) / (dx * dx + dy * dy).max(1e-9);
    let part = part.clamp(0.0, 1.0);
    distance(point, (from.0 + part * dx, from.1 + part * dy))
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    fn scene(side: usize, dashes: usize) -> Scene {
        let dash = (side as f64 / 16.0).max(2.0);
        let distractors = Scene::usual_distractors(side, dashes);
        Scene { side, dashes, distractors, dash, gap: dash / 2.0, bend: 40.0 }
    }

    /// The centres of the dots: the two brightest discs, found in the pixels only.
    fn dots(scene: &Scene, pixels: &[u8]) -> [(usize, usize); 2] {
        let side = scene.side;
        let inside = scene.dot() - 0.2;
        let weight = |x: usize, y: usize| -> u64 {
            let near = scene.pixels_near((x as f64, y as f64), inside);
            let disc =
                near.filter(|(c, r)| distance((x as f64, y as f64), (*c as f64, *r as f64)) <= scene.dot() + 0.6);
            disc.map(|(c, r)| u64::from(pixels[r * side + c])).sum()
        };
        let mut all: Vec<(u64, usize, usize)> =
            (0..side * side).map(|at| (weight(at % side, at / side), at % side, at / side)).collect();
        all.sort_unstable_by(|one, other| other.cmp(one));
        let (_, x, y) = all[0];
        let far =
            |(_, a, b): &&(u64, usize, usize)| a.abs_diff(x) + b.abs_diff(y) > 2 * scene.dot().ceil() as usize + 1;
        let other = all.iter().find(far).unwrap();
        [(x, y), (other.1, other.2)]
    }

    /// Follows the path from the first dot over the pixels, never jumping farther than a gap, and returns whether it reaches the
    /// other dot. It shares only the length of a gap with the generator.
    fn follow(scene: &Scene, pixels: &[u8]) -> bool {
        let side = scene.side;
        let [start, goal] = dots(scene, pixels);
        let jump = scene.gap + 1.6;
        let reach = jump.ceil() as usize;
        let mut seen = vec![false; side * side];
        let mut open = vec![start];
        seen[start.1 * side + start.0] = true;
        while let Some((x, y)) = open.pop() {
            if x.abs_diff(goal.0) <= 1 && y.abs_diff(goal.1) <= 1 {
                return true;
            }
            for row in y.saturating_sub(reach)..=(y + reach).min(side - 1) {
                for column in x.saturating_sub(reach)..=(x + reach).min(side - 1) {
                    let at = row * side + column;
                    let near = distance((x as f64, y as f64), (column as f64, row as f64)) <= jump;
                    if near && pixels[at] >= 128 && !seen[at] {
                        seen[at] = true;
                        open.push((column, row));
                    }
                }
            }
        }
        false
    }

    #[test]
    fn following_the_path_finds_the_answer() {
        let (mut connected, mut all) = (0, 0);
        for (side, dashes, images) in [(32, 6, 60), (32, 9, 60), (32, 14, 20), (64, 14, 20), (128, 14, 6), (256, 14, 3)]
        {
            let scene = scene(side, dashes);
            let mut rng = ChaCha8Rng::seed_from_u64(side as u64 + dashes as u64);
            for image in 0..images {
                let drawing = scene.draw(&mut rng).unwrap();
                assert_eq!(drawing.pixels.len(), side * side);
                assert_eq!(
                    follow(&scene, &drawing.pixels),
                    drawing.connected,
                    "{side}, {dashes} dashes, image {image}"
                );
                connected += usize::from(drawing.connected);
            }
            all += images;
        }
        assert!((all * 2 / 5..all * 3 / 5).contains(&connected), "{connected} of {all}");
    }

    #[test]
    fn brightness_does_not_tell_the_answer() {
        let scene = scene(32, 9);
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut means = [(0.0, 0.0); 2];
        for _ in 0..400 {
            let drawing = scene.draw(&mut rng).unwrap();
            let sum: u64 = drawing.pixels.iter().map(|pixel| u64::from(*pixel)).sum();
            let mean = &mut means[usize::from(drawing.connected)];
            *mean = (mean.0 + sum as f64, mean.1 + 1.0);
        }
        let [apart, together] = means.map(|(sum, count)| sum / count);
        assert!((apart / together - 1.0).abs() < 0.03, "{apart} and {together}");
    }

    #[test]
    fn paths_that_do_not_fit_are_refused() {
        let error = scene(16, 60).draw(&mut ChaCha8Rng::seed_from_u64(1)).unwrap_err();
        assert!(error.message.contains("two paths of 60 dashes"), "{error}");
    }
}
