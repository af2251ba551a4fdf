#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/draft/drafter.h"
#include "engine/sequence/draft_vocab.h"
#include "engine/sequence/prompt.h"

namespace draftscope {

struct SequenceShadows;

/// A prompt being decoded, with the state of its drafter and heads.
struct Sequence {
    Sequence(KvCache cache_in, const Tokenizer* tokenizer) : cache(std::move(cache_in)) {
        if (tokenizer != nullptr) text.emplace(*tokenizer);
    }

    PromptInput prompt;
    std::uint64_t number = 0;  ///< index of the prompt in its run; key of the random numbers
    PromptRow row;
    std::vector<TokenId> tokens;  ///< prompt and generated tokens; the last one is the next root
    KvCache cache;                ///< of every token except the last
    std::unique_ptr<DrafterState> drafter;
    DraftLengths lengths;
    std::unique_ptr<HeadState> head;
    std::shared_ptr<DraftVocab> active;  ///< the session's, or its own if the head has a state
    std::vector<float> hidden, aux;      ///< features of the slots verified since the drafter's last call
    int new_slots = 0;
    kernels::DeviceBuffer device_features;  ///< [device_rows, width], replaces both after a round
    int device_rows = 0;
    std::optional<TextStream> text;
    std::shared_ptr<SequenceShadows> shadows;  ///< null if no other head is evaluated
    PromptOutcome outcome;

    bool done() const { return outcome.finish != Finish::none; }
    int generated() const { return static_cast<int>(tokens.size()) - outcome.prompt_tokens; }
    /// Appends the printable text that became complete to the outcome. Returns its bytes.
    std::size_t append(std::span<const TokenId> added);
    /// Downloads the features that a round left in the backend's memory and appends them to `to`, rounded to
    /// bf16.
    Status download_features(kernels::Backend& backend, int width, std::vector<float>& to) const;
    /// Copies the prompt's features, rounded to bf16: `d` wide hidden states and `aux_width` wide aux
    /// features; 0 = not needed.
    void store_features(kernels::Backend& backend, const ForwardOutput& prefill, int d, int aux_width);
};

/// Limits that end a text.
struct TextLimits {
    const Tokenizer* eos = nullptr;  ///< null = no token ends the text
    int max_new = 0;
    int context = 0;  ///< maximum tokens of prompt and text together
};
/// Returns how many of `emitted` are kept, and the reason if the prompt ends with them.
std::pair<std::size_t, Finish> truncate_at_stop(const Sequence& sequence, std::span<const TokenId> emitted,
                                                const TextLimits& limits);

}  // namespace draftscope
