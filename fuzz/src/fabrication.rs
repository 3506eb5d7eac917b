//! Makes values of any type that serde reads, from nothing but the type: the seeds of all messages and files in
//! JSON.
//!
//! [`Fabricator`] is a deserializer without input. It makes up what the type asks for, each time by a choice: a
//! text is one of [`TEXTS`], an enum one of its variants. Where the type refuses what it got, the last choice is
//! made another way and all begins again. A struct gets all of its fields. One with a flattened part does not name
//! its fields, so it gets those without which it refuses.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::slice;
use std::sync::LazyLock;

/// The depth at which lists in lists, and structs in structs, end.
const DEEPEST: usize = 12;
/// The number of tries to make a value, after which its type counts as one of which nothing can be made.
const MOST_TRIES: usize = 10_000;

/// The texts that are tried for a field, the likely ones first.
static TEXTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let words =
        "pot://lab/a a/b 127.0.0.1:7700 4+2 0644 30d 10 1 10% auto off here write user disk 1GiB";
    let hex = [16, 8, 32, 64, 24].map(|digits| "1".repeat(digits));
    let base64 = [25, 36, 52, 48, 32].map(|bytes| STANDARD.encode(vec![1; bytes]));
    let ticket = crate::texts::issued_ticket().public.to_string();
    words.split(' ').map(str::to_owned).chain(hex).chain(base64).chain([ticket]).collect()
});
/// The numbers that are tried for a field.
const NUMBERS: [u64; 5] = [1, 0, 2, 4096, 1 << 20];

/// Returns values of the type: one with as little as possible, one with everything, and one for each variant that
/// an enum in it has besides.
pub fn values<T: DeserializeOwned>() -> Vec<T> {
    let mut values: Vec<T> = Script::new(true).value().into_iter().collect();
    let mut seen = BTreeSet::new();
    let mut scripts = vec![(None, Script::new(false))];
    while let Some((wanted, mut script)) = scripts.pop() {
        if wanted.is_some_and(|variant| seen.contains(&variant)) {
            continue;
        }
        let Some(value) = script.value() else { continue };
        values.push(value);
        seen.extend(script.choices.iter().filter_map(|choice| choice.variant(choice.taken)));
        for (at, choice) in script.choices.iter().enumerate() {
            for other in (choice.taken + 1..choice.of).rev() {
                let Some(variant) = choice.variant(other) else { break };
                scripts.push((Some(variant), script.with(at, other)));
            }
        }
    }
    values
}

/// The choices by which one value is made.
#[derive(Clone)]
struct Script {
    choices: Vec<Choice>,
    /// The number of choices, from the first, that stay as they are.
    fixed: usize,
    /// The number of choices that were made since the value was begun.
    made: usize,
    depth: usize,
    /// True if everything that can be left out is.
    is_sparse: bool,
    /// The names that a map turned out to need, for maps whose fields serde does not tell (`flatten`). The key is
    /// the number of choices that are made before the map.
    needed: BTreeMap<usize, Vec<&'static str>>,
    /// The number of choices that were made before the innermost such map.
    map: usize,
}

#[derive(Clone)]
struct Choice {
    taken: usize,
    of: usize,
    /// The name of the enum and its variants, if the choice is of a variant.
    variants: Option<(&'static str, &'static [&'static str])>,
}

impl Choice {
    fn variant(&self, number: usize) -> Option<(&'static str, &'static str)> {
        self.variants.map(|(of, variants)| (of, variants[number]))
    }
}

impl Script {
    fn new(is_sparse: bool) -> Self {
        let (choices, needed) = (Vec::new(), BTreeMap::new());
        Self { choices, fixed: 0, made: 0, depth: 0, is_sparse, needed, map: 0 }
    }

    /// Returns a script that takes `taken` at choice `at`, keeps the choices before it, and is free after it.
    fn with(&self, at: usize, taken: usize) -> Self {
        let mut other = self.clone();
        other.choices.truncate(at + 1);
        other.choices[at].taken = taken;
        other.needed.retain(|before, _| *before <= at);
        Self { fixed: at + 1, ..other }
    }

    /// Returns the value that the script leads to. Choices that the type refuses are changed; `None` if none of
    /// them suits.
    fn value<T: DeserializeOwned>(&mut self) -> Option<T> {
        for _ in 0..MOST_TRIES {
            (self.made, self.depth, self.map) = (0, 0, 0);
            let refused = match T::deserialize(Fabricator(self)) {
                Ok(value) => return Some(value),
                Err(refused) => refused,
            };
            self.choices.truncate(self.made);
            match refused {
                Refused::Lacks(name) => self.needed.entry(self.map).or_default().push(name),
                Refused::Other if self.goes_another_way() => {}
                Refused::Other => return None,
            }
        }
        None
    }

    /// Changes the last choice that can be made another way; false when there is none.
    fn goes_another_way(&mut self) -> bool {
        while self.choices.len() > self.fixed {
            let last = self.choices.last_mut().expect("more than none");
            if last.taken + 1 < last.of {
                last.taken += 1;
                return true;
            }
            self.choices.pop();
        }
        false
    }

    fn choose(
        &mut self,
        of: usize,
        variants: Option<(&'static str, &'static [&'static str])>,
    ) -> usize {
        if self.made == self.choices.len() {
            self.choices.push(Choice { taken: 0, of, variants });
        }
        self.made += 1;
        self.choices[self.made - 1].taken
    }

    fn number(&mut self) -> u64 {
        let number = NUMBERS[self.choose(NUMBERS.len(), None)];
        if self.is_sparse { 1 - number.min(1) } else { number }
    }

    fn text(&mut self) -> &'static str {
        &TEXTS[self.choose(TEXTS.len(), None)]
    }

    fn ends_here(&self) -> bool {
        self.is_sparse || self.depth > DEEPEST
    }
}

/// The reason why a type refused what was made up for it.
#[derive(Debug)]
enum Refused {
    /// A map lacks this field.
    Lacks(&'static str),
    Other,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Other
    }

    fn missing_field(name: &'static str) -> Self {
        Self::Lacks(name)
    }
}

/// Makes up what a type asks for.
struct Fabricator<'a>(&'a mut Script);

impl Fabricator<'_> {
    /// Makes up a map of `unnamed` entries, or a struct with the fields that turned out to be missing before.
    fn map<'de, V: Visitor<'de>>(self, unnamed: usize, visitor: V) -> Result<V::Value, Refused> {
        let (place, around) = (self.0.made, self.0.map);
        let names = self.0.needed.get(&place).cloned().unwrap_or_default();
        self.0.map = place;
        self.deeper(|script| {
            let map = visitor.visit_map(Fields { names: names.iter(), unnamed, script })?;
            script.map = around;
            Ok(map)
        })
    }

    /// Makes up something with parts, which are one level deeper.
    fn deeper<T>(self, made: impl FnOnce(&mut Script) -> Result<T, Refused>) -> Result<T, Refused> {
        self.0.depth += 1;
        let whole = made(self.0)?;
        self.0.depth -= 1;
        Ok(whole)
    }
}

macro_rules! made_up {
    ($($asked:ident)*, |$script:ident, $visitor:ident| $made:expr) => {$(
        fn $asked<V: Visitor<'de>>(self, $visitor: V) -> Result<V::Value, Refused> {
            let $script = self.0;
            $made
        }
    )*};
}

impl<'de> Deserializer<'de> for Fabricator<'_> {
    type Error = Refused;

    made_up!(
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_i8
        deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128,
        |script, visitor| visitor.visit_u64(script.number())
    );
    made_up!(deserialize_f32 deserialize_f64, |script, visitor| {
        visitor.visit_f64(script.number() as f64)
    });
    made_up!(deserialize_bool, |script, visitor| visitor.visit_bool(!script.is_sparse));
    made_up!(deserialize_char, |_script, visitor| visitor.visit_char('a'));
    made_up!(deserialize_str deserialize_string, |script, visitor| visitor.visit_str(script.text()));
    made_up!(deserialize_bytes deserialize_byte_buf, |_script, visitor| visitor.visit_bytes(b"a"));
    made_up!(deserialize_unit deserialize_ignored_any, |_script, visitor| visitor.visit_unit());
    // This is the name of an unknown field.
    made_up!(deserialize_identifier, |_script, visitor| visitor.visit_str("more"));

    /// Makes up any value of JSON. A list is empty, and an object has only what turned out to be missing: to try
    /// all that could be there as well would take too long.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.0.choose(TEXTS.len() + 5, None) {
            0 => visitor.visit_u64(1),
            1 => visitor.visit_bool(true),
            2 => visitor.visit_unit(),
            3 => visitor.visit_seq(Items { script: self.0, left: 0 }),
            4 => self.map(0, visitor),
            text => visitor.visit_str(&TEXTS[text - 5]),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        if self.0.ends_here() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let items = usize::from(!self.0.ends_here());
        self.deeper(|script| visitor.visit_seq(Items { script, left: items }))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deeper(|script| visitor.visit_seq(Items { script, left: len }))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let unnamed = usize::from(!self.0.ends_here());
        self.map(unnamed, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deeper(|script| visitor.visit_map(Fields { names: fields.iter(), unnamed: 0, script }))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let variant = variants[self.0.choose(variants.len(), Some((name, variants)))];
        self.deeper(|script| visitor.visit_enum(Variant { script, name: variant }))
    }
}

struct Fields<'a> {
    script: &'a mut Script,
    names: slice::Iter<'a, &'static str>,
    /// The number of entries before the named ones, whose names are made up.
    unnamed: usize,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        key: K,
    ) -> Result<Option<K::Value>, Refused> {
        if self.unnamed > 0 {
            self.unnamed -= 1;
            return key.deserialize(Fabricator(self.script)).map(Some);
        }
        let name: Option<StrDeserializer<'_, Refused>> =
            self.names.next().map(|name| name.into_deserializer());
        name.map(|name| key.deserialize(name)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, value: V) -> Result<V::Value, Refused> {
        value.deserialize(Fabricator(self.script))
    }
}

struct Items<'a> {
    script: &'a mut Script,
    left: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        item: T,
    ) -> Result<Option<T::Value>, Refused> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        item.deserialize(Fabricator(self.script)).map(Some)
    }
}

struct Variant<'a> {
    script: &'a mut Script,
    name: &'static str,
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Refused;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Refused> {
        let name: StrDeserializer<'_, Refused> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Refused> {
        seed.deserialize(Fabricator(self.script))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Refused> {
        Fabricator(self.script).deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_map(Fields { names: fields.iter(), unnamed: 0, script: self.script })
    }
}
