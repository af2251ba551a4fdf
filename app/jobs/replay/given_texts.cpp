#include "app/jobs/replay/given_texts.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/jobs/run/conversation_feed.h"
#include "capture/run_setting.h"
#include "engine/heads/artefact.h"
#include "storage/capture_file.h"
#include "storage/import/import_rounds.h"

namespace draftscope {
namespace {

using nlohmann::json;

/// Reads the prompts and texts of one run.
class GivenReader {
  public:
    /// `run` is one of the snapshot's.
    GivenReader(const std::string& path, const Target& target, const Snapshot& snapshot, const RunRow& run,
                const std::map<RowId, std::vector<TokenId>>& prompt_ids)
        : path_(path),
          target_(target),
          run_(run),
          snapshot_(snapshot),
          prompt_ids_(prompt_ids),
          info_(describe_target(target)) {}

    Result<GivenTexts> read() {
        DS_TRY(read_run());
        for (const TokenRow& token : snapshot_.tokens) tokens_[token.prompt_id].push_back(&token);
        for (const auto& prompt : snapshot_.prompts)
            if (prompt->run_id == run_.id) DS_TRY(read_prompt(*prompt));
        if (!refused_.empty()) add_note(out_.notes, "--ids {}: left out: {}", path_, refused_);
        if (as_text_ > 0)
            add_note(
                out_.notes,
                "--ids {}: {} of {} prompts are known as text; it was tokenised as it is, special tokens "
                "included",
                path_, as_text_, out_.prompts.size());
        if (!out_.prompts.empty()) return std::move(out_);
        return bad_input("--ids {}: no prompt has tokens to follow{}{}", path_, refused_.empty() ? "" : ": ",
                         refused_);
    }

    /// Keeps a part of one text of what read() has read.
    Result<GivenTexts> keep(GivenTexts all, const GivenPart& part) const {
        const auto found = std::ranges::find(rows_, part.prompt_id);
        if (found == rows_.end())
            return bad_input("{}: the text of this round cannot be followed{}{}", path_,
                             refused_.empty() ? "" : ": ", refused_);
        const int place = static_cast<int>(found - rows_.begin());
        PromptInput prompt = std::move(all.prompts[static_cast<std::size_t>(place)]);
        GivenText text = std::move(all.texts[place]);
        const int before = part.from - static_cast<int>(prompt.tokens.size());
        if (before < 0 || before >= std::ssize(text.tokens))
            return bad_input("{}: the text has no token at position {}", path_, part.from);
        prompt.tokens.insert(prompt.tokens.end(), text.tokens.begin(), text.tokens.begin() + before);
        text.tokens.erase(text.tokens.begin(), text.tokens.begin() + before);
        if (std::ssize(text.tokens) > part.tokens) {
            text.tokens.resize(static_cast<std::size_t>(part.tokens));
            text.finish = Finish::length;
        }
        prompt.ordinal = 0;
        all.prompts = {std::move(prompt)};
        all.texts = {{0, std::move(text)}};
        all.hashes = {{0, ""}};
        return all;
    }

  private:
    /// Reads how the run was decoded. Prompts of ours are user turns; others are whole texts.
    Status read_run() {
        const json config = json::parse(run_.config_json, nullptr, false);
        const auto text = [&](std::string_view key) {
            const auto found = config.is_object() ? config.find(key) : config.end();
            return found != config.end() && found->is_string() ? found->get<std::string>() : std::string();
        };
        const std::string made = text("tokenizer_fingerprint");
        if (!made.empty() && made != info_.tokenizer_hash)
            return bad_input("--ids {}: was decoded by {} with tokenizer {}; {} has {}", path_, run_.target,
                             made, info_.name, info_.tokenizer_hash);
        whole_ = run_.acceptance == imported_acceptance || config.contains(replayed_recording_key);
        if (std::isnan(run_.temperature))
            add_note(out_.notes, "--ids {}: does not say its temperature; greedy is assumed", path_);
        else
            out_.sampling.temperature = run_.temperature;
        out_.sampling.seed = run_.seed;
        if (whole_ || !config.is_object()) return {};
        out_.sampling.top_p = config.value("top_p", out_.sampling.top_p);
        out_.sampling.top_k = config.value("top_k", out_.sampling.top_k);
        config_.raw = out_.raw = config.value("raw", false);
        config_.system = text("system");
        std::istringstream switches(text("template") == "none" ? "" : text("template"));
        for (std::string one; switches >> one;) config_.template_switches.push_back(one);
        out_.template_switches = config_.template_switches;
        DS_ASSIGN(chat_, choose_chat(target_, config_, {}, out_.notes));
        return {};
    }

    Status read_prompt(const PromptRow& row) {
        DS_ASSIGN(GivenText text, read_text(row));
        if (text.tokens.empty())
            return refuse(row, tokens_[row.id].empty() ? "the file has no token ids of its text"
                                                       : "its first token is not known");
        auto tokens = prompt_tokens(row);
        if (!tokens.ok()) return refuse(row, tokens.error().message);
        if (row.prompt_tokens >= 0 && std::cmp_not_equal(tokens->size(), row.prompt_tokens))
            return refuse(row, fmt::format("its text has {} tokens here, and {} by the file", tokens->size(),
                                           row.prompt_tokens));
        if (tokens->empty() || std::cmp_greater_equal(tokens->size(), info_.context))
            return refuse(
                row, fmt::format("{} tokens do not fit the context of {}", tokens->size(), info_.context));
        DS_TRY(check_ids(row, *tokens, "prompt"));
        as_text_ += whole_ && !prompt_ids_.contains(row.id) ? 1 : 0;
        PromptInput& prompt = out_.prompts.emplace_back();
        const int ordinal = static_cast<int>(out_.prompts.size()) - 1;
        prompt.id = row.external_id;
        prompt.suite = row.suite.empty() ? std::filesystem::path(path_).stem().string() : row.suite;
        prompt.category = row.category;
        prompt.turn = row.turn;
        prompt.tokens = std::move(*tokens);
        prompt.ordinal = ordinal;
        rows_.push_back(row.id);
        out_.texts[ordinal] = std::move(text);
        if (!whole_) out_.hashes[ordinal] = prompt_hash(turns_.front().content);
        return {};
    }

    /// Returns the text up to the first unknown token.
    Result<GivenText> read_text(const PromptRow& row) {
        std::vector<const TokenRow*>& rows = tokens_[row.id];
        std::ranges::stable_sort(rows, {}, &TokenRow::position);
        GivenText out;
        for (const TokenRow* one : rows)
            if (one->position == static_cast<int>(out.tokens.size())) out.tokens.push_back(one->token_id);
        DS_TRY(check_ids(row, out.tokens, "text"));
        const bool cut = !rows.empty() && rows.back()->position >= static_cast<int>(out.tokens.size());
        if (cut && !out.tokens.empty())
            add_note(out_.notes, "--ids {}: prompt {}: token {} is not known; its text ends before it", path_,
                     row.external_id, out.tokens.size());
        if (out.tokens.empty()) return out;
        const bool ended = std::ranges::find(info_.eos, out.tokens.back()) != info_.eos.end();
        const bool says = row.finish != Finish::none && row.finish != Finish::eos;
        out.finish = ended ? Finish::eos : cut ? Finish::cancelled : says ? row.finish : Finish::length;
        return out;
    }

    /// Returns the prompt's tokens; an error says why they are not known.
    Result<std::vector<TokenId>> prompt_tokens(const PromptRow& row) {
        if (!whole_) return apply_template(row);
        if (const auto ids = prompt_ids_.find(row.id); ids != prompt_ids_.end()) return ids->second;
        if (row.text.empty())
            return bad_input(
                "neither ids nor text of its prompt are known (give the server's words, or import them with "
                "--model)");
        return ConversationFeed::encode_prompt(target_, row.text, true);
    }

    Result<std::vector<TokenId>> apply_template(const PromptRow& row) {
        if (row.turn == 0) turns_.clear();
        Conversation one{row.external_id, row.category, {row.text}, config_.system, turns_};
        turns_.push_back({"user", row.text});
        turns_.push_back({"assistant", row.output});
        return ConversationFeed::first_turn(target_, one, chat_);
    }

    Status check_ids(const PromptRow& row, const std::vector<TokenId>& ids, std::string_view part) const {
        for (std::size_t i = 0; i < ids.size(); ++i)
            if (ids[i] < 0 || ids[i] >= info_.tokens)
                return bad_input("--ids {}: prompt {}: id {} at position {} of its {}: {} has {} tokens",
                                 path_, row.external_id, ids[i], i, part, info_.name, info_.tokens);
        return {};
    }

    Status refuse(const PromptRow& row, const std::string& why) {
        constexpr int named = 8;
        if (++out_.refused <= named)
            refused_ += fmt::format("{}prompt {}: {}", refused_.empty() ? "" : "; ", row.external_id, why);
        else if (out_.refused == named + 1)
            refused_ += "; ...";
        return {};
    }

    const std::string& path_;
    const Target& target_;
    const RunRow& run_;
    const Snapshot& snapshot_;
    const std::map<RowId, std::vector<TokenId>>& prompt_ids_;
    const RecordedTarget info_;
    std::map<RowId, std::vector<const TokenRow*>> tokens_;  ///< by prompt
    bool whole_ = true;                                     ///< texts of prompts are what the model read
    RunConfig config_;
    ChatTemplate chat_;
    std::vector<ChatMessage> turns_;  ///< of the conversation so far
    GivenTexts out_;
    std::vector<RowId> rows_;  ///< by prompt
    std::string refused_;
    int as_text_ = 0;
};

}  // namespace

int GivenTexts::longest() const {
    std::size_t longest = 1;
    for (const auto& [ordinal, text] : texts) longest = std::max(longest, text.tokens.size());
    return static_cast<int>(longest);
}

Result<GivenTexts> read_given_texts(const std::string& path, const Target& target,
                                    const std::optional<GivenPart>& part) {
    RoundsReport report;
    const bool imported = is_rounds_file(path);
    DS_ASSIGN(const std::shared_ptr<const Snapshot> snapshot,
              imported ? import_rounds(path, &report) : load_capture(path));
    std::vector<const RunRow*> runs;
    for (const RunRow& run : snapshot->runs)
        if (part ? run.id == part->run_id : !is_baseline(run)) runs.push_back(&run);
    if (runs.empty()) return bad_input("--ids {}: has no run", path);
    GivenReader reader(path, target, *snapshot, *runs.back(), report.prompt_ids);
    DS_ASSIGN(GivenTexts given, reader.read());
    if (part) return reader.keep(std::move(given), *part);
    if (runs.size() > 1)
        add_note(given.notes, "--ids {}: has {} runs; the newest is recorded: {}", path, runs.size(),
                 runs.back()->name);
    return given;
}

std::optional<PromptInput> GivenFeed::next() {
    if (begun_ == given_.prompts.size()) return std::nullopt;
    hooks_.report(static_cast<double>(begun_) / static_cast<double>(given_.prompts.size()),
                  fmt::format("recording prompt {} of {}", begun_ + 1, given_.prompts.size()));
    return given_.prompts[begun_++];
}

}  // namespace draftscope
