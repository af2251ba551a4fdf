#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "storage/import/import_rounds.h"
#include "storage/import/round_fields.h"

namespace draftscope::storage {

/// One round, or `count` equal ones, as a line of `dsrounds` says it. Negative numbers are not known.
struct RoundLine {
    int count = 1;
    int ordinal = -1, context = -1, drafted = -1, depth = -1;
    int accepted = 0, committed = 0;
    std::string drafter;                           ///< that drafted this round; "" = not said
    std::vector<int> out, draft;                   ///< token ids
    std::vector<int> parents, depths;              ///< of the drafted nodes; parent -1 = the root
    std::vector<int> path;                         ///< drafted nodes that were accepted
    std::vector<float> logprobs, target_logprobs;  ///< empty = not known
    std::vector<int> target_ranks;                 ///< empty = not known
    /// Best tokens of the drafter at each node's place, with their log-probabilities.
    std::vector<std::vector<std::pair<TokenId, float>>> alternatives;
    std::optional<TimeNs> start, duration;
    std::vector<std::pair<int, TimeNs>> phases;  ///< phase id, time
};

/// Reads and checks a round. Problems are left in `fields`. Token ids lie below `vocab_size`.
RoundLine read_round(RoundFields& fields, int vocab_size);

/// Sends the lines of `dsrounds` as records.
class RoundLines {
  public:
    RoundLines(const RoundsOptions& options, RecordSink& out, RoundsReport& report)
        : options_(options), out_(out), report_(report) {}

    /// Requests of the next file are others, even if their names are the same.
    void next_file();
    /// Begins a run, unless the header is that of the last one. A header that cannot be used is bad_input.
    Status begin_run(const nlohmann::json& header);
    /// Takes a request or a round. Returns why it is refused; "" = it was taken.
    std::string add(const nlohmann::json& line);
    /// Records a loss and a note of the current run; before a run they are kept for the next.
    void note(const std::string& text, bool refused);
    void end_run();

  private:
    struct Request {
        PromptRow row;
        TokenId last = no_token;  ///< of the text so far
        int rounds = 0;
        int context = -1;    ///< tokens before the next round; negative = not known
        int next_round = 0;  ///< negative: a line was refused, and any number may follow
        std::optional<std::int64_t> completion_tokens;
        bool ended = false;
    };

    Request& request(const std::string& name);
    std::string add_request(RoundFields& fields, Request& request);
    std::string add_round(RoundFields& fields, Request& request);
    std::string check_order(const RoundLine& round, const Request& request) const;
    void push_round(const RoundLine& round, Request& request);
    void add_nodes(const RoundLine& round, const Request& request, RoundRecord& record) const;
    void add_tokens(const RoundLine& round, Request& request, RoundRecord& record);
    StepRecord timed_step(const RoundLine& round);
    void end_request(Request& request);
    int vocab_size() const;
    std::string token_text(TokenId token) const;  ///< "" = not known
    void append_text(Request& request, TokenId token);

    const RoundsOptions& options_;
    RecordSink& out_;
    RoundsReport& report_;
    RowIds ids_;
    RunRow run_;
    std::string header_;  ///< of the current run; "" = none
    bool prefill_first_ = false;
    int header_vocab_ = 0, steps_ = 0, file_ = 0;
    std::map<std::pair<int, std::string>, Request> requests_;  ///< by file and name
    std::vector<std::string> waiting_;                         ///< notes before the first run
    std::optional<TimeNs> file_zero_;                          ///< first time in the file
    TimeNs base_ = 0;                                          ///< end of the file before
    TimeNs last_end_ = 0;
    std::int64_t replayed_ = 0, refused_ = 0;  ///< lines of the run
    bool says_no_start_ = false, says_batch_ = false;
};

}  // namespace draftscope::storage
