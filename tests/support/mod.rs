//! What the tests of the translators share: a driver without pipes or time, the judges, and the golden format.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod claude;
pub(crate) mod conversation;
pub(crate) mod convert;
pub(crate) mod files;
pub(crate) mod golden;
pub(crate) mod judge;
pub(crate) mod passing;
pub(crate) mod passing_golden;
pub(crate) mod passing_rules;
pub(crate) mod passing_sim;
pub(crate) mod reverse;
pub(crate) mod reverse_golden;
pub(crate) mod reverse_rules;
pub(crate) mod reverse_sim;
pub(crate) mod rules;
pub(crate) mod schema;
pub(crate) mod sim;
