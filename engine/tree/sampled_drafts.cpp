#include "engine/tree/sampled_drafts.h"

#include "base/rng.h"

namespace draftscope {
namespace {

enum class Purpose : std::uint64_t { target = 0, draft = 1, accept = 2 };

double purpose_uniform(Purpose purpose, std::uint64_t seed, std::uint64_t sequence, std::int64_t position,
                       int order) {
    const std::uint64_t counter = static_cast<std::uint64_t>(purpose) << 60 |
                                  static_cast<std::uint64_t>(order) << 40 |
                                  static_cast<std::uint64_t>(position);
    return token_uniform(seed, sequence, counter);
}

}  // namespace

double draft_uniform(std::uint64_t seed, std::uint64_t sequence, std::int64_t position, int order) {
    return purpose_uniform(Purpose::draft, seed, sequence, position, order);
}

double accept_uniform(std::uint64_t seed, std::uint64_t sequence, std::int64_t position, int order) {
    return purpose_uniform(Purpose::accept, seed, sequence, position, order);
}

}  // namespace draftscope
