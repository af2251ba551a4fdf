#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/heads/artefact.h"
#include "engine/heads/head.h"
#include "tests/support/host_call.h"
#include "tests/support/scratch_folder.h"

namespace draftscope::testing {

/// Fixture for single heads: a random LM head of 301 tokens and artefacts made for it.
class LmHeadFixture : public ::testing::Test {
  public:
    static constexpr int vocab = 301, padded = 304, hidden = 64, rows = 5;

    explicit LmHeadFixture(kernels::Precision precision = kernels::Precision::int8);

    Rows<const float> input() const { return {inputs_.data(), rows, hidden}; }
    /// Returns the values of a random tensor; the same seed gives the same values.
    static std::vector<float> random(std::size_t count, std::uint64_t seed, float scale = 1.0f);

    /// Ranks the tokens from the highest id to the lowest.
    static std::vector<std::int32_t> descending_ids();
    /// Returns valid metadata for an artefact of `head`; tests modify it.
    static ArtefactInfo info(const std::string& head);
    /// Tensors of an artefact under construction; owns their values.
    struct Tensors {
        void floats(const std::string& name, std::vector<std::int64_t> shape,
                    const std::vector<float>& values);
        void integers(const std::string& name, const std::vector<std::int32_t>& values);
        void integers(const std::string& name, std::vector<std::int64_t> shape,
                      const std::vector<std::int32_t>& values);
        void remove(const std::string& name);
        std::vector<TensorToSave> list() const;

      private:
        struct One {
            std::string name;
            std::string_view type;
            std::vector<std::int64_t> shape;
            std::vector<std::byte> data;
        };
        std::vector<One> all_;
    };
    /// Writes the artefact and passes it to the next make().
    void save(const ArtefactInfo& info, const Tensors& tensors);
    void save_affinity(const ArtefactInfo& info, const Tensors& tensors);

    std::unique_ptr<LmHead> make(const std::string& spec);
    std::string error_message(const std::string& spec);

    /// Starts a round of the sequences with these states. The head's own work must not read inputs.
    void begin_round(LmHead& head, std::vector<HeadState*> states);
    /// Makes one call at `level` over `input`, with each row's state in `states` (all null if empty).
    Proposal propose(LmHead& head, int level, int k, std::vector<HeadState*> states = {});
    Proposal propose(LmHead& head, Rows<const float> input, int level, int k, std::vector<HeadState*> states);
    /// Calls begin() with these inputs, then propose().
    Proposal propose_begun(LmHead& head, Rows<const float> embeddings, Rows<const float> parents,
                           Rows<const float> input, int level, int k, const std::vector<HeadState*>& states);
    std::vector<TokenId> covered(const LmHead& head, int level, const HeadState* state = nullptr) const;
    /// Returns the logits that drafts would be sampled from, [rows, vocab]; -inf outside the support.
    std::vector<float> scores(LmHead& head, int level = 0, HeadState* state = nullptr);
    /// Returns the dense logits of the LM head over the fixture's input, [rows][vocab].
    std::vector<std::vector<float>> dense();
    bool saw(Phase phase, Lane lane = Lane::critical) const;

    std::unique_ptr<kernels::Backend> exec_ = kernels::make_cpu_backend(2);
    kernels::Matrix matrix_;
    HeadWeights weights_;
    std::vector<float> inputs_;
    HeadFiles artefacts_;
    std::vector<SpanEvent> events_;

  private:
    ScratchFolder folder_;
};

/// Checks a row of a proposal against the dense logits of its support: order, ties, clipping, logsumexp.
void expect_row(const Proposal& found, int row, const std::vector<float>& logits,
                const std::vector<TokenId>& support);
/// Checks that row `row` of `found` equals row `other_row` of `other` bit for bit.
void expect_same_row(const Proposal& found, int row, const Proposal& other, int other_row);

}  // namespace draftscope::testing
