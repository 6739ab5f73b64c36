//! The store as a whole: opening it, and closing it.

use std::path::Path;

use crate::database::Database;
use crate::error::StoreErrorKind;
use crate::failure_point::Trap;
use crate::layout::Layout;
use crate::session::{Gate, Session, remove_leftovers};
use crate::verify::Verified;
use crate::{StoreError, rows};

/// An open store. Share it by reference or in an `Arc`; it may be used from many tasks at once.
#[derive(Debug)]
pub struct Store {
    pub(crate) layout: Layout,
    pub(crate) database: Database,
    /// `None` if the store is open only for reading.
    session: Option<Session>,
    pub(crate) trap: Trap,
    pub(crate) verified: Verified,
}

impl Store {
    /// Opens the store in the folder `home` for reading and writing. Missing files are created, an older store is
    /// migrated to the current schema, and unfinished work of dead processes in `work/` is removed.
    ///
    /// # Errors
    /// If the folder cannot be written, holds something else, or was changed by a newer Assay.
    pub async fn open(home: &Path) -> Result<Store, StoreError> {
        let layout = Layout::new(home);
        let made = !layout.work().exists();
        let gate = run_blocking({
            let layout = layout.clone();
            move || {
                layout.create_folders()?;
                let gate = Gate::enter_gate(&layout)?;
                remove_leftovers(&layout, &gate)?;
                Ok(gate)
            }
        })
        .await?;
        let database = match Database::open(&layout.database(), &gate).await {
            Ok(database) => database,
            Err(error) => {
                if made {
                    layout.remove_empty();
                }
                return Err(error);
            }
        };
        let session = Session::begin(&layout, &gate, rows::now_millis())?;
        Ok(Store { layout, database, session: Some(session), trap: Trap::default(), verified: Verified::default() })
    }

    /// Opens the store in the folder `home` only for reading, while other processes may write it.
    ///
    /// # Errors
    /// If the store does not exist, or has another version.
    pub async fn open_read_only(home: &Path) -> Result<Store, StoreError> {
        let layout = Layout::new(home);
        layout.check_home()?;
        if !layout.database().exists() {
            let message = format!("there is no store in `{}`", home.display());
            let hint = "`assay run` makes one; name another folder with --home";
            return Err(StoreError::new(StoreErrorKind::Absent, message, hint));
        }
        let database = Database::open_read_only(&layout.database()).await?;
        Ok(Store { layout, database, session: None, trap: Trap::default(), verified: Verified::default() })
    }

    /// The folder.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.layout.home()
    }

    /// Closes the connections and removes this process's work folder. A store that is dropped without this loses
    /// nothing: the next `open` cleans up. Runs that are still in progress count as interrupted from now on.
    pub async fn close(&self) {
        self.database.close_connections().await;
        if let Some(session) = &self.session {
            session.remove_folder();
        }
    }

    /// A number that differs whenever another connection, of this process or of another one, has changed the store since it was last asked
    /// for. It costs microseconds, independent of the store's size.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn data_version(&self) -> Result<i64, StoreError> {
        self.database.data_version().await
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.session.is_some()
    }

    pub(crate) fn session(&self) -> Result<&Session, StoreError> {
        self.session
            .as_ref()
            .ok_or_else(|| StoreError::new(StoreErrorKind::ReadOnly, "the store is open for reading only", ""))
    }
}

/// Runs a function that blocks on files or locks on a thread for blocking work.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            Err(StoreError::new(StoreErrorKind::Io, format!("work on the store's files failed: {error}"), ""))
        }
    }
}
