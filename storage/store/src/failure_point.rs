//! The points at which a crash would leave something half done, by name, so that tests can crash there.

use crate::StoreError;

/// A place between two steps that are not one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailurePoint {
    /// A run's row and tasks are written, and not committed.
    BeginNotCommitted,
    /// A batch is applied, and not committed.
    BatchNotCommitted,
    /// A batch is committed; the segments of the attempts that ended in it are not written.
    BatchCommitted,
    /// A segment is at its place; the database does not know of it.
    SegmentWritten,
    /// An artifact is copied, and not at its place.
    ArtifactCopied,
    /// An artifact is at its place; the database does not know of it.
    ArtifactPlaced,
    /// An interrupted run is closed, and not committed.
    RecoveryNotCommitted,
    /// Interrupted runs are closed; their points are not sealed.
    RecoveryCommitted,
}

/// Where to fail, if anywhere. Outside of tests it is empty and costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Trap {
    #[cfg(test)]
    armed: std::sync::Mutex<Option<FailurePoint>>,
}

#[cfg(test)]
impl Trap {
    /// Every failure point, in the order of a run's life.
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

    /// From now on, whatever reaches this point fails there, as if the process had died.
    pub(crate) fn arm_point(&self, point: FailurePoint) {
        *self.armed.lock().unwrap() = Some(point);
    }
}

impl Trap {
    /// Passes, unless a test has armed this point.
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
