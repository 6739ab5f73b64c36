//! Named points at which a crash would interrupt an operation, so that tests can crash there.

use crate::StoreError;

/// A point between two steps that are not one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailurePoint {
    /// A run's row and tasks are written but not committed.
    BeginNotCommitted,
    /// A batch is applied but not committed.
    BatchNotCommitted,
    /// A batch is committed; the segments of the attempts that ended in it are not written.
    BatchCommitted,
    /// A segment has its final name; the database does not refer to it.
    SegmentWritten,
    /// An artifact is copied but does not have its final name.
    ArtifactCopied,
    /// An artifact has its final name; the database does not refer to it.
    ArtifactPlaced,
    /// An interrupted run is closed but not committed.
    RecoveryNotCommitted,
    /// Interrupted runs are closed; their points are not sealed.
    RecoveryCommitted,
}

/// The point at which to fail, if any. Outside of tests it is empty and free of cost.
#[derive(Debug, Default)]
pub(crate) struct Trap {
    #[cfg(test)]
    armed: std::sync::Mutex<Option<FailurePoint>>,
}

#[cfg(test)]
impl Trap {
    /// Every failure point, in the order in which a run reaches them.
    pub(crate) const ALL: [FailurePoint; 8] = [
        FailurePoint::BeginNotCommitted,
        FailurePoint::BatchNotCommitted,
        FailurePoint::BatchCommitted,
        FailurePoint::SegmentWritten,
        FailurePoint::ArtifactCopied,
        FailurePoint::ArtifactPlaced,
        FailurePoint::RecoveryNotCommitted,
        FailurePoint::RecoveryCommitted,
    ];

    /// From now on, an operation that reaches this point fails there, as if the process had died.
    pub(crate) fn arm_point(&self, point: FailurePoint) {
        *self.armed.lock().unwrap() = Some(point);
    }
}

impl Trap {
    /// Succeeds unless a test has armed this point.
    pub(crate) fn check_point(&self, point: FailurePoint) -> Result<(), StoreError> {
        #[cfg(test)]
        if *self.armed.lock().unwrap() == Some(point) {
            return Err(StoreError::new(crate::StoreErrorKind::Io, format!("injected crash at {point:?}"), ""));
        }
        #[cfg(not(test))]
        let _ = point;
        Ok(())
    }
}
