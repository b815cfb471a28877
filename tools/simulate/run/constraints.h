// The tokenizer of the simulated model, and constraints of answers.
#pragma once

#include <memory>

#include "services/gateway/constraint/constraint.h"
#include "services/gateway/tokenizer/tokenizer.h"

namespace tandem::simulate {

// Of the model.
const gateway::Tokenizer& TheTokenizer();
// Made once, before a world begins: a JSON schema and a regular expression.
const std::shared_ptr<gateway::constraint::Constraint>& TheSchema();
const std::shared_ptr<gateway::constraint::Constraint>& ThePattern();

}  // namespace tandem::simulate
