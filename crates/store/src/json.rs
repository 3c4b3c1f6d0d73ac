//! Values of Rust types, as JSON (the cargo feature `serde`).
//!
//! Of all forms that serde has, this one: values outlive the program that wrote them, and in JSON
//! each names its fields, so that fields may be added and left out later. `forebay store get` shows
//! it, other languages read it, and no further crate is needed, as the store's manifest is JSON
//! too. That each value repeats its fields' names is what [compression](crate::Compression) is for.
//! A program that wants another form puts the bytes that its own codec makes.

use crate::{Keyspace, Store, StoreError, Value};
use serde::{Serialize, de::DeserializeOwned};

/// The value's JSON, for whatever takes bytes: [`Batch::put`](crate::Batch::put),
/// [`Transaction::put`](crate::Transaction::put), [`Store::compare_and_swap`].
///
/// # Errors
/// [`StoreError::ToJson`] of a value that has none, as a map whose keys are no strings or numbers.
///
/// ```
/// # #[derive(serde::Serialize)]
/// # struct Boat { colour: String }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
/// let boat = Boat { colour: "blue".to_owned() };
/// let mut batch = store.batch();
/// batch.put("boat", &forebay_store::to_json(&boat)?)?;
/// batch.put("boats", &forebay_store::to_json(&1)?)?;
/// store.write(&batch)?;
/// # Ok(())
/// # }
/// ```
pub fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|source| StoreError::ToJson { source })
}

impl Value {
    /// The value's JSON, as a `T`.
    ///
    /// # Errors
    /// [`StoreError::FromJson`] if it is none, or none of that type.
    ///
    /// ```
    /// # #[derive(serde::Deserialize)]
    /// # struct Boat { colour: String }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # store.put("boat/ark", r#"{"colour":"brown"}"#)?;
    /// for pair in store.prefix("boat/")? {
    ///     let boat: Boat = pair?.1.from_json()?;
    ///     println!("{}", boat.colour);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_json<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_slice(self).map_err(|source| StoreError::FromJson { source })
    }
}

impl Store {
    /// [Puts](Self::put) the value's JSON.
    ///
    /// # Errors
    /// As [`to_json`] and [`put`](Self::put).
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    /// #[derive(Serialize, Deserialize)]
    /// struct Boat {
    ///     colour: String,
    ///     #[serde(default)] // for boats that were put before it was added
    ///     sails: u32,
    /// }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put_json("boat", &Boat { colour: "blue".to_owned(), sails: 2 })?;
    /// store.put("ark", r#"{"colour": "brown"}"#)?; // from elsewhere
    /// let ark: Option<Boat> = store.get_json("ark")?;
    /// assert_eq!(ark.map(|ark| ark.sails), Some(0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_json<T: Serialize + ?Sized>(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
        value: &T,
    ) -> Result<(), StoreError> {
        self.put(key, &to_json(value)?)
    }

    /// The JSON of the key's value, as a `T`, if the key has one.
    ///
    /// # Errors
    /// As [`Value::from_json`] and [`get`](Self::get).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put_json("sizes", &[3, 4, 5])?;
    /// assert_eq!(store.get_json("sizes")?, Some(vec![3, 4, 5]));
    /// assert!(store.get_json::<String>("sizes").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_json<T: DeserializeOwned>(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<Option<T>, StoreError> {
        self.get(key)?.map(|value| value.from_json()).transpose()
    }
}

impl Keyspace<'_> {
    /// As [`Store::put_json`].
    ///
    /// # Errors
    /// As [`to_json`] and [`put`](Self::put).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// use forebay_store::{Compression, KeyspaceOptions};
    /// // The names of the fields, which each value repeats, take little then.
    /// let options = KeyspaceOptions::new().compression(Compression::Lz4);
    /// let sizes = store.keyspace("sizes", options)?;
    /// sizes.put_json("ark", &[300, 50, 30])?;
    /// assert_eq!(sizes.get_json("ark")?, Some(vec![300, 50, 30]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_json<T: Serialize + ?Sized>(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
        value: &T,
    ) -> Result<(), StoreError> {
        self.put(key, &to_json(value)?)
    }

    /// As [`Store::get_json`].
    ///
    /// # Errors
    /// As [`Value::from_json`] and [`get`](Self::get).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # let boats = store.keyspace("boats", forebay_store::KeyspaceOptions::new())?;
    /// assert_eq!(boats.get_json::<String>("ark")?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_json<T: DeserializeOwned>(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<Option<T>, StoreError> {
        self.get(key)?.map(|value| value.from_json()).transpose()
    }
}
