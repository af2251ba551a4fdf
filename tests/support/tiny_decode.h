#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "tests/support/decode_fixture.h"
#include "tests/support/ranking_file.h"
#include "tests/support/tiny_drafter.h"
#include "tests/support/tiny_model.h"

/// Sessions on a random target of few tokens. The trees of random drafters are then often right several
/// levels deep.
namespace draftscope::testing {

inline constexpr int few_tokens = 13;

inline TinyModelOptions few_token_options(int context = 256) {
    TinyModelOptions options{.vocab = few_tokens, .context = context};
    return options;
}

/// Prompts of one token, of repeated tokens, and of more tokens than a prefill chunk.
inline std::vector<std::vector<TokenId>> varied_prompts() {
    std::vector<std::vector<TokenId>> all = {{5}, {}, {}};
    for (int i = 0; i < 24; ++i) all[1].push_back(i % 6);
    Rng rng(3);
    for (int i = 0; i < 131; ++i) all[2].push_back(static_cast<TokenId>(rng.below(few_tokens)));
    return all;
}

/// A random target with a checkpoint of every drafter and a ranking of its tokens, in a fixture.
class TinyDecode {
  protected:
    explicit TinyDecode(const TinyModelOptions& options = few_token_options(),
                        kernels::Precision precision = kernels::Precision::f32, int eagle3_rows = 0)
        : TinyDecode(DecodeFixture::build(make_tiny_model(21, options), precision), eagle3_rows) {}

  private:
    TinyDecode(std::unique_ptr<Target> target, int eagle3_rows)
        : eagle2_(target->config(), 77),
          eagle3_(target->config(), 78, eagle3_rows),
          medusa_(target->config(), false, 79),
          hydra_(target->config(), true, 80),
          draft_model_(target->config(), 81),
          ranking_(RankingFile::shuffled(target->config().vocab)),
          fixture_(std::move(target),
                   {{"eagle2", eagle2_.folder()},
                    {"eagle3", eagle3_.folder()},
                    {"medusa", medusa_.folder()},
                    {"hydra", hydra_.folder()},
                    {"draft-model", draft_model_.path()},
                    {"pair", "suffix+eagle3:" + eagle3_.folder()}},
                   ranking_.path()) {}

    TinyEagle2 eagle2_;
    TinyEagle3 eagle3_;
    TinyDecodingHeads medusa_, hydra_;
    TinyDraftModel draft_model_;

  protected:
    RankingFile ranking_;
    DecodeFixture fixture_;
};

/// Expects the texts of plain decoding, and that drafts were accepted.
inline void expect_same_texts(const std::vector<PromptOutcome>& found,
                              const std::vector<PromptOutcome>& expected, const DecodeCase& setting) {
    ASSERT_EQ(found.size(), expected.size());
    std::int64_t accepted = 0;
    for (std::size_t p = 0; p < found.size(); ++p) {
        EXPECT_EQ(found[p].tokens, expected[p].tokens) << to_text(setting) << " prompt " << p;
        accepted += found[p].accepted;
    }
    EXPECT_GT(accepted, 0) << to_text(setting);
}

}  // namespace draftscope::testing
