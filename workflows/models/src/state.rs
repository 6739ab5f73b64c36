//! [`State`]: the parts of a model's state by name.

use std::sync::Arc;

use assay_tensor::Tensor;

/// Parts of a state by name, in the order of the names. Decoding creates one for every token, with some dozen parts: so
/// they are in a vector, and share their names with the previous state.
#[derive(Clone, Default)]
pub struct State(Vec<(Arc<str>, Tensor)>);

impl State {
    /// An empty state with the capacity for as many parts as `like` has.
    pub(crate) fn with_room_of(like: &State) -> State {
        State(Vec::with_capacity(like.0.len()))
    }

    /// The index of a name, or where it would be inserted.
    fn place(&self, name: &str) -> Result<usize, usize> {
        // Parts are usually inserted in the order of their names.
        match self.0.last() {
            Some((last, _)) if **last < *name => Err(self.0.len()),
            _ => self.0.binary_search_by(|(known, _)| (**known).cmp(name)),
        }
    }

    /// The part with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        // Usually the name is the same object with which the part was inserted.
        let same = |(known, _): &&(Arc<str>, Tensor)| std::ptr::eq(&**known, name);
        self.0.iter().find(same).map(|(_, part)| part).or_else(|| self.place(name).ok().map(|at| &self.0[at].1))
    }

    /// Inserts a part, or replaces the part with this name.
    pub fn insert(&mut self, name: impl Into<Arc<str>>, part: Tensor) {
        let name = name.into();
        match self.place(&name) {
            Ok(at) => self.0[at].1 = part,
            Err(at) => self.0.insert(at, (name, part)),
        }
    }

    /// All parts, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Tensor)> + Clone {
        self.0.iter().map(|(name, part)| (name, part))
    }

    /// The names in order.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().map(|(name, _)| name)
    }

    /// The parts, in the order of their names.
    pub fn parts(&self) -> impl Iterator<Item = &Tensor> {
        self.0.iter().map(|(_, part)| part)
    }

    /// The parts, mutable.
    pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut Tensor> {
        self.0.iter_mut().map(|(_, part)| part)
    }

    /// The parts whose names are between two names, inclusive.
    pub(crate) fn between(&self, first: &str, last: &str) -> impl Iterator<Item = &Tensor> + Clone {
        let from = self.0.partition_point(|(name, _)| **name < *first);
        self.0[from..].iter().take_while(move |(name, _)| **name <= *last).map(|(_, part)| part)
    }

    /// The parts whose names start with `name` and `mark`, followed by more.
    pub(crate) fn behind<'a>(
        &'a self,
        name: &'a str,
        mark: char,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Tensor)> + Clone {
        let from = self.0.partition_point(|(found, _)| **found <= *name);
        // Names with a common prefix are consecutive.
        let all = self.0[from..].iter().take_while(move |(found, _)| found.starts_with(name));
        all.filter(move |(found, _)| found[name.len()..].starts_with(mark)).map(|(name, part)| (name, part))
    }

    /// Keeps the parts with these names.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| keep(name));
    }
}

impl IntoIterator for State {
    type Item = (Arc<str>, Tensor);
    type IntoIter = std::vec::IntoIter<(Arc<str>, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Extend<(Arc<str>, Tensor)> for State {
    fn extend<I: IntoIterator<Item = (Arc<str>, Tensor)>>(&mut self, parts: I) {
        parts.into_iter().for_each(|(name, part)| self.insert(name, part));
    }
}

impl FromIterator<(Arc<str>, Tensor)> for State {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Tensor)>>(parts: I) -> State {
        let mut state = State::default();
        state.extend(parts);
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_by_name_and_come_in_the_order_of_names() {
        let device = assay_reference::device();
        let part = |x: f64| Tensor::from_f64(&device, vec![x], 1).unwrap();
        let mut state = State::default();
        for (name, x) in [("b", 1.0), ("d", 2.0), ("a", 3.0), ("c", 4.0), ("b", 5.0)] {
            state.insert(name, part(x));
        }
        let values: Vec<f64> = state.parts().map(|part| part.item().unwrap()).collect();
        assert_eq!(
            (state.names().map(|name| &**name).collect::<String>(), values),
            ("abcd".into(), vec![3.0, 5.0, 4.0, 2.0])
        );
        assert!(state.get("b").is_some() && state.get("aa").is_none() && state.get("e").is_none());
        assert_eq!(state.between("aa", "c").count(), 2);
        for name in ["b/2", "b+", "b/1", "bb/", "b"] {
            state.insert(name, part(0.0));
        }
        assert_eq!(state.behind("b", '/').map(|(name, _)| &**name).collect::<Vec<_>>(), ["b/1", "b/2"]);
        state.retain(|name| name != "b");
        assert_eq!(state.clone().into_iter().collect::<State>().names().count(), 7);
    }
}
