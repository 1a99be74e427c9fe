// Why something does not survive the circle, by the name of the fact.

export const REASONS = {};
