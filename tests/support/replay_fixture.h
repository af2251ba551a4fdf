#pragma once

#include <string>
#include <vector>

#include "engine/recording/record_decode.h"
#include "engine/replay/replay.h"
#include "tests/support/decode_fixture.h"
#include "tests/support/scratch_folder.h"

namespace draftscope::testing {

/// A feed of single prompts, in the order of a session over the same list.
class TokenFeed : public PromptFeed {
  public:
    explicit TokenFeed(const std::vector<std::vector<TokenId>>& prompts) : prompts_(prompts) {}
    std::optional<PromptInput> next() override;
    void done(const PromptInput&, PromptOutcome) override {}

  private:
    const std::vector<std::vector<TokenId>>& prompts_;
    std::size_t next_ = 0;
};

/// The rounds of a live run as a replay would report them, prompt by prompt.
std::vector<std::vector<HeadRound>> live_rounds(DecodeFixture& fixture, const DecodeCase& setting,
                                                const std::vector<std::vector<TokenId>>& prompts);

/// Records the prompts with the setting's sampling and limits. A failure is a test failure.
std::shared_ptr<const DecodeRecording> record(DecodeFixture& fixture, const DecodeCase& setting,
                                              const std::vector<std::vector<TokenId>>& prompts,
                                              const std::vector<int>& aux_layers, const std::string& folder,
                                              int batch = 3);

/// Replays the setting's drafter, head and tree along a recording. Both are made on the given target.
std::vector<std::vector<HeadRound>> replayed_rounds(DecodeFixture& fixture, const DecodeRecording& recording,
                                                    const Target& recorded_target, Drafter& drafter,
                                                    LmHead* head, const DecodeCase& setting,
                                                    ReplayOptions options = {});

/// Everything except covered_mass, active_rows and bytes, for comparisons.
std::string round_text(const HeadRound& round);
std::vector<std::string> round_texts(const std::vector<HeadRound>& rounds);

}  // namespace draftscope::testing
