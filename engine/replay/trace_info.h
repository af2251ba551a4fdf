#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "capture/rows.h"
#include "engine/verify/verify.h"

namespace draftscope {

/// Tokens of the target's own ranking kept per row.
inline constexpr int trace_topk = 32;
inline constexpr int trace_version = 1;

/// What a trace knows of the model that made it.
struct TraceTarget {
    std::string name;
    int layers = 0;
    int hidden = 0;              ///< d
    int vocab = 0;               ///< V, rows of the LM head
    int tokens = 0;              ///< real ids; rows of the LM head beyond are padding
    int context = 0;             ///< positions: the limit that clips trees near the end
    std::string tokenizer_hash;  ///< Tokenizer::fingerprint() as 16 hexadecimal digits; "" = not known
    std::vector<TokenId> eos;    ///< ids that end a turn: in every static draft vocabulary
};

/// One turn of a conversation. Its rows are [first_row, first_row + rows()).
struct TracePrompt {
    std::string id, suite, category;
    int turn = 0;
    std::string hash;  ///< prompt_hash() of the conversation's first turn; "" = not known
    std::int64_t first_row = 0;
    int prompt_tokens = 0;
    int generated_tokens = 0;  ///< at least 1
    Finish finish = Finish::none;
    int rows() const { return prompt_tokens + generated_tokens; }
};

/// trace.json.
struct TraceInfo {
    std::string source;  ///< program that recorded: "draftscope 0.2.0", "transformers 4.51.3"
    TraceTarget target;
    Sampling sampling;
    int max_new = 0;
    bool ignore_eos = false;
    bool raw = false;       ///< prompts went without a chat template
    std::string backend;    ///< "cpu", "cuda"; as every text below "" when not known
    std::string isa;        ///< kernels::to_text(Isa)
    std::string precision;  ///< of the target's weights
    std::vector<int>
        aux_layers;         ///< residual streams entering these layers make a row of `aux`; empty = no aux
    std::int64_t rows = 0;  ///< N
    bool complete = true;   ///< false = cancelled before the last prompt
    std::vector<TracePrompt> prompts;  ///< in the order of the prompt file
    std::map<int, TimeNs> verify_ns;   ///< measured T_verify of M rows; empty = not measured
    std::optional<TimeNs> overhead_ns;

    int aux_width() const { return static_cast<int>(aux_layers.size()) * target.hidden; }
};

/// An impossible value is bad_input naming file and field.
Result<TraceInfo> read_trace_info(const std::string& path);
std::string to_json_text(const TraceInfo& info);

}  // namespace draftscope
