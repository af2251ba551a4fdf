#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/decode_fixture.h"

namespace draftscope::testing {

/// The demo model with its drafters and ranking. Requires demo_model_present().
std::unique_ptr<DecodeFixture> make_demo_fixture(kernels::Precision precision);

/// Templated and encoded first turns of the evaluation prompts, spread over the categories. They are short,
/// so that tests spend their time on decoding.
std::vector<std::vector<TokenId>> demo_prompts(const Target& target, std::size_t count);

}  // namespace draftscope::testing
