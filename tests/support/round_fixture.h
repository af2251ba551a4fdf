#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/support/decode_fixture.h"
#include "tests/support/ranking_file.h"
#include "tests/support/round_cases.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_artefacts.h"
#include "tests/support/tiny_drafter.h"

namespace draftscope::testing {

/// A small random target with checkpoints of all drafters and artefacts of all heads, for the cases of
/// round_cases.h.
class RoundFixture {
  public:
    /// Runs everything on `exec`, which must outlive the fixture.
    RoundFixture(kernels::Backend& exec, kernels::Precision precision);

    DecodeFixture& engine() { return *fixture_; }
    const std::string& eagle2_folder() const { return eagle_->folder(); }
    std::string ranking_path() const { return ranking_.path(); }
    /// Replaces the names of the case tables by what the engine reads: checkpoints and the fixed tree.
    DecodeCase resolve(DecodeCase setting) const;
    /// Decodes `prompts` and returns the recorded steps.
    std::vector<StepRecord> steps(const DecodeCase& setting,
                                  const std::vector<std::vector<TokenId>>& prompts);

  private:
    ScratchFolder folder_;
    std::optional<TinyEagle2> eagle_;
    std::optional<TinyEagle3> eagle3_, eagle3_normed_;
    std::optional<TinyDecodingHeads> medusa_, hydra_, medusa_whole_, hydra_whole_;
    RankingFile ranking_;
    std::optional<DecodeFixture> fixture_;
    std::optional<TinyArtefacts> artefacts_;
};

}  // namespace draftscope::testing
