#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "storage/import/import_rounds.h"
#include "storage/import/round_fields.h"

/// What the readers of rounds share.
namespace draftscope::storage {

/// Reads JSON documents: one a line, or one over several lines.
class AnswerReader : public RoundsReader {
  public:
    using Convert = void (*)(const Json& answer, RoundsSink& out);
    explicit AnswerReader(Convert convert) : convert_(convert) {}
    void read(std::string_view line, RoundsSink& out) override;
    void finish(RoundsSink& out) override;

  private:
    bool take(RoundsSink& out);

    Convert convert_;
    std::string text_;
};

/// Reads server-sent events: lines "data: {...}". A comment ": arrived NS" tells when the next ones arrived.
class StreamReader : public RoundsReader {
  public:
    void read(std::string_view line, RoundsSink& out) final;
    virtual void event(const Json& event, RoundsSink& out) = 0;

  protected:
    std::optional<TimeNs> arrival_;  ///< of the event; absent in a stream without such comments
};

/// Adds a histogram of accepted drafts: `histogram[a]` rounds accepted a. `drafted` in all, if known.
void add_histogram(const std::string& request, const std::vector<int>& histogram,
                   std::optional<std::int64_t> drafted, RoundsSink& out);
/// Starts a header of `dsrounds`. Empty texts are left out.
Json make_header(std::string_view engine, std::string_view source, const std::string& target);
/// Converts the first characters of a text from a number; absent if there is none.
std::optional<double> leading_number(std::string_view text);
/// Converts milliseconds to whole nanoseconds.
std::int64_t to_ns(double ms);

std::unique_ptr<RoundsReader> make_dsrounds_reader();
std::unique_ptr<RoundsReader> make_llama_stream_reader();
std::unique_ptr<RoundsReader> make_llama_answer_reader();
std::unique_ptr<RoundsReader> make_llama_log_reader();
std::unique_ptr<RoundsReader> make_vllm_stream_reader();
std::unique_ptr<RoundsReader> make_vllm_answer_reader();
std::unique_ptr<RoundsReader> make_vllm_log_reader();
std::unique_ptr<RoundsReader> make_metrics_reader();
std::unique_ptr<RoundsReader> make_sglang_answer_reader();
std::unique_ptr<RoundsReader> make_trtllm_answer_reader();

}  // namespace draftscope::storage
