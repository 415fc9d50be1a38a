//! Runs the example of a user's own mechanism.

#[path = "../examples/own_mechanism.rs"]
mod own_mechanism;

use burn::tensor::Device;
use heedful_attention::contract::error::ConfigError;
use heedful_attention::contract::layer_spec::{LayerSpec, Role};
use heedful_attention::description::{AnyMechanism, Card, Mechanism};
use heedful_attention::registry::{RegistryError, register};
use heedful_random::RandomKey;
use own_mechanism::RecencyConfig;
use serde::{Deserialize, Serialize};

/// One test, since the registry is that of the whole program.
#[test]
fn an_own_mechanism_conforms_and_is_known_by_its_name_once_it_is_registered() {
    assert!(matches!("recency".parse::<AnyMechanism>(), Err(ConfigError::UnknownAttention { .. })));
    own_mechanism::main().unwrap();
    for name in ["recency", "recency+dot-product", "recency@local-1d", "dot-product+recency@sparse-fixed"] {
        let parsed: AnyMechanism = name.parse().unwrap();
        assert_eq!(parsed.name(), name);
        let place = LayerSpec::new(Role::Decoder, 4, 2).with_max_length(8);
        assert_eq!(parsed.validate(&place), Ok(()));
        parsed.init(&place, &RandomKey::from_seed(1), &Device::flex());
    }
    assert!(AnyMechanism::names().contains(&"recency") && AnyMechanism::families().contains(&"recency"));
    // The name may stand behind the options.
    for text in ["{\"name\": \"recency\", \"mean\": -1.5}", "{\"mean\": -1.5, \"name\": \"recency\"}"] {
        let read: AnyMechanism = serde_json::from_str(text).unwrap();
        assert_eq!(read.get::<RecencyConfig>(), Some(&RecencyConfig { mean: -1.5 }));
        assert_eq!(serde_json::to_string(&read).unwrap(), "{\"name\":\"recency\",\"mean\":-1.5}");
    }
    let unknown = serde_json::from_str::<AnyMechanism>("{\"name\": \"recency\", \"maen\": 1}").unwrap_err().to_string();
    assert!(unknown.contains("maen"), "{unknown}");
    assert_eq!(register::<RecencyConfig>(), Err(RegistryError::Taken("recency")));
    assert_eq!(register::<Loud>(), Err(RegistryError::Malformed("a+b")));
    assert_eq!(register::<Usurper<0>>(), Err(RegistryError::Taken("dot-product")));
    assert_eq!(register::<Usurper<1>>(), Err(RegistryError::Taken("random")));
    assert_eq!(register::<Usurper<2>>(), Err(RegistryError::Taken("recency")));
    assert_eq!(register::<Usurper<3>>(), Err(RegistryError::Malformed("a b")));
    assert_eq!(register::<Unnamed>(), Err(RegistryError::NoVariant("unnamed")));
    assert_eq!("dot-product".parse::<AnyMechanism>().unwrap().family(), "dot-product");
    register::<Borrowing>().unwrap();
    assert_eq!("borrowing".parse::<AnyMechanism>().unwrap().family(), "borrowing");
}

/// A mechanism with another spelling that is taken, or is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Usurper<const SPELLING: usize> {}

impl<const SPELLING: usize> Mechanism for Usurper<SPELLING> {
    const NAME: &'static str = "usurper";
    const CARD: Card = Card {
        variant: "Usurper",
        // A name, a spelling, a name of a user's own, and a text that cannot stand in `a+b@c`.
        aliases: [&[("dot-product", "usurper")], &[("random", "usurper")], &[("recency", "usurper")], &[("a b", "usurper")]][SPELLING],
        ..Loud::CARD
    };
}

/// A mechanism whose default options are found by a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Borrowing {
    from: AnyMechanism,
}

impl Default for Borrowing {
    fn default() -> Self {
        Self { from: "dot-product".parse().unwrap() }
    }
}

impl Mechanism for Borrowing {
    const NAME: &'static str = "borrowing";
    const CARD: Card = Card { variant: "Borrowing", ..Loud::CARD };
}

/// A mechanism whose name would be a mixture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Loud {}

impl Mechanism for Loud {
    const NAME: &'static str = "a+b";
    const CARD: Card = Card { variant: "Loud", ..Card::DEFAULT };
}

/// A mechanism whose parameters would have no part of their paths that says which it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Unnamed {}

impl Mechanism for Unnamed {
    const NAME: &'static str = "unnamed";
    const CARD: Card = Card::DEFAULT;
}

#[test]
fn an_own_mechanism_learns() {
    let losses = own_mechanism::train(60);
    assert!(losses[0] > 1.0 && losses[59] < 0.3, "from {} to {}", losses[0], losses[59]);
}
