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

/// Number of the target's best tokens stored for each row.
inline constexpr int recording_topk = 32;
inline constexpr int recording_version = 1;

/// The recorded model.
struct RecordedTarget {
    std::string name;
    int layers = 0;
    int hidden = 0;              ///< d
    int vocab = 0;               ///< V, rows of the LM head
    int tokens = 0;              ///< number of real token ids; further rows of the LM head are padding
    int context = 0;             ///< number of positions; trees are clipped at this limit
    std::string tokenizer_hash;  ///< Tokenizer::fingerprint() as 16 hexadecimal digits; "" = unknown
    std::vector<TokenId> eos;    ///< ids that end a turn; part of every static draft vocabulary
};

/// One turn of a conversation, with rows [first_row, first_row + rows()).
struct RecordedPrompt {
    std::string id, suite, category;
    int turn = 0;
    std::string hash;  ///< prompt_hash() of the conversation's first turn; "" = unknown
    std::int64_t first_row = 0;
    int prompt_tokens = 0;
    int generated_tokens = 0;  ///< at least 1
    Finish finish = Finish::none;
    int rows() const { return prompt_tokens + generated_tokens; }
};

/// Texts of another engine that a recording follows, and how far the target would have chosen them.
struct GivenAgreement {
    std::string file;  ///< its name, without folders
    std::int64_t tokens = 0;
    std::int64_t agreed = 0;  ///< tokens that are the target's best ones
    double largest_gap = 0;   ///< log-probability of the best token minus that of the given one
};

/// The contents of trace.json.
struct RecordingInfo {
    std::string source;  ///< recording program: "draftscope 0.2.0", "transformers 4.51.3"
    RecordedTarget target;
    Sampling sampling;
    int max_new = 0;
    bool ignore_eos = false;
    bool raw = false;                                 ///< no chat template was used
    std::vector<std::string> template_switches = {};  ///< of the chat template, KEY=VALUE
    int skipped = 0;                                  ///< conversations that the model could not take
    std::optional<GivenAgreement> given = {};         ///< absent = the target chose the texts
    std::string backend;                              ///< "cpu", "cuda"; "" = unknown, as for the texts below
    std::string isa;                                  ///< kernels::to_text(Isa)
    std::string precision;                            ///< of the target's weights
    std::vector<int> aux_layers;  ///< layers whose input residual streams form a row of `aux`; empty = no aux
    std::int64_t rows = 0;        ///< N
    bool complete = true;         ///< false = cancelled before the last prompt
    int shard_index = 1, shard_count = 1;  ///< which part of the prompt file; 1/1 = all of it
    std::vector<RecordedPrompt> prompts;   ///< in the order of the prompt file
    std::map<int, TimeNs> verify_ns;       ///< measured T_verify by number of rows M; empty = not measured
    std::optional<TimeNs> overhead_ns;

    int aux_width() const { return static_cast<int>(aux_layers.size()) * target.hidden; }
};

/// Reads trace.json. An invalid value is bad_input that names file and field.
Result<RecordingInfo> read_recording_info(const std::string& path);
std::string to_json_text(const RecordingInfo& info);

}  // namespace draftscope
