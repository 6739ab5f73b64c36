//! How reductions over several axes are split into reductions over one: [`group_axes`].

/// The groups of neighbouring axes among `axes` (ascending), as (outer, middle, inner) extents, the last group first; each
/// sees the groups behind it as reduced already.
pub fn group_axes(dims: &[usize], axes: &[usize]) -> Vec<[usize; 3]> {
    let mut dims = dims.to_vec();
    let mut found = Vec::new();
    let mut rest = axes;
    while let Some(&last) = rest.last() {
        let run = rest.iter().rev().enumerate().take_while(|&(i, &axis)| axis + i == last).count();
        let first = last + 1 - run;
        let extent = |dims: &[usize]| dims.iter().product::<usize>();
        found.push([extent(&dims[..first]), extent(&dims[first..=last]), extent(&dims[last + 1..])]);
        dims[first..=last].fill(1);
        rest = &rest[..rest.len() - run];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_axes_are_reduced_together() {
        assert_eq!(group_axes(&[2, 3, 4, 5], &[0, 1, 3]), [[24, 5, 1], [1, 6, 4]]);
        assert_eq!(group_axes(&[2, 3], &[]), [[0usize; 3]; 0]);
        assert_eq!(group_axes(&[2, 3, 4], &[1]), [[2, 3, 4]]);
    }
}
