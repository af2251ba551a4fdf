#include "engine/draft/registry.h"

namespace draftscope {
namespace {

/// No drafting: each tree is its root.
class NoDrafter final : public Drafter {
  public:
    NoDrafter() : Drafter({.uses_head = false}) {}
    std::unique_ptr<DrafterState> make_state(int, bool) const override {
        return std::make_unique<DrafterState>();
    }
    Status begin(DraftContext&, std::span<DraftJob> jobs) override {
        for (DraftJob& job : jobs) {
            if (job.tokens.empty()) return failed("none: a sequence without tokens has no root");
            job.out.reset(job.tokens.back());
            job.rows_per_call.clear();
            job.is_known = true;
            DS_TRY(job.out.finish());
        }
        return {};
    }
};

Result<std::unique_ptr<Drafter>> make_none(const std::string& path, const Target&, kernels::Backend&) {
    if (!path.empty()) return bad_input("drafter 'none' accepts nothing after the colon, found '{}'", path);
    return std::unique_ptr<Drafter>(std::make_unique<NoDrafter>());
}

}  // namespace

DrafterInfo describe_none() {
    return {.id = "none",
            .name = "Autoregressive",
            .help = "no drafts: one token per round, the baseline",
            .drafts = false,
            .uses_head = false,
            .needs_weights = false,
            .make = make_none};
}

}  // namespace draftscope
