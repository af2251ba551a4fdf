#include "app/jobs/run/prompt_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "app/jobs/run/prompt_line.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "engine/heads/artefact.h"
#include "stats/bench_table.h"

namespace draftscope {
namespace {

using nlohmann::json;

constexpr std::string_view spaces = " \t\r\n\f";
constexpr std::string_view example_line = R"({"prompt": "Name three rivers."})";

/// Returns the reason why a line is not JSON: another encoding, plain text, or a syntax error.
std::string line_mistake(std::string_view line) {
    if (line.find('\0') != std::string_view::npos || line.starts_with("\xff\xfe") ||
        line.starts_with("\xfe\xff"))
        return "is UTF-16; convert the file: iconv -f UTF-16 -t UTF-8";
    if (const std::size_t at = valid_utf8_prefix(line); at < line.size())
        return fmt::format(
            "is not UTF-8 (byte 0x{:02x} at column {}); if it is Latin-1, convert the file: iconv -f LATIN1 "
            "-t UTF-8",
            static_cast<unsigned char>(line[at]), at + 1);
    const std::size_t first = line.find_first_not_of(spaces);
    if (line.substr(first, 1).find_first_of("{[\"") == 0) return json_mistake(line);
    return "plain text instead of a JSON object";
}

/// Returns the text of a prompt file. A pipe has it only once, so that of pipes is kept.
Result<std::string> read_all(const std::string& path) {
    static std::mutex mutex;
    static std::map<std::string, std::string> pipes;
    const std::lock_guard lock(mutex);
    if (const auto found = pipes.find(path); found != pipes.end()) return found->second;
    std::error_code error;
    if (std::filesystem::is_directory(path, error))
        return bad_input("prompt file {}: is a folder; name a file with a JSON object per line", path);
    std::ifstream file;
    const bool piped = path == standard_input;
    if (!piped) file.open(path, std::ios::binary);
    if (!piped && !file) return bad_input("prompt file {}: cannot be opened", path);
    std::string text(std::istreambuf_iterator<char>(piped ? std::cin : file), {});
    if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
    if (piped || !std::filesystem::is_regular_file(path, error)) pipes[path] = text;
    return text;
}

/// Collects the prompts of a file, and why others are left out.
class PromptReader {
  public:
    explicit PromptReader(const std::string& path) : path_(path) {}

    void read(const std::string& text) {
        const std::size_t first = text.find_first_not_of(spaces);
        const bool is_list = first != std::string::npos && text[first] == '[';
        const json whole = json::parse(text, nullptr, false);
        if (whole.is_array() && !is_message_list(whole)) {
            for (const json& entry : whole) add(entry, fmt::format("entry {}", ordinal_ + 1));
        } else if (!whole.is_discarded()) {
            add(whole, fmt::format("line {}",
                                   1 + std::count(text.begin(),
                                                  text.begin() + static_cast<std::ptrdiff_t>(first), '\n')));
        } else if (is_list && json::parse(text.substr(0, text.find('\n')), nullptr, false).is_discarded()) {
            skip(json_mistake(text), "the list");
        } else {
            read_lines(text);
        }
    }
    Result<std::vector<Conversation>> take(Notes* notes) {
        if (read_.empty() && mistake_.empty()) return bad_input("prompt file {}: contains no prompt", path_);
        if (read_.empty())
            return bad_input("prompt file {}, {}; a prompt looks like {}", path_, mistake_, example_line);
        if (notes != nullptr && skipped_ > 0)
            add_note(*notes, "prompt file {}: {} of {} prompts {} skipped; {}{}", path_, skipped_, ordinal_,
                     skipped_ == 1 ? "is" : "are", skipped_ == 1 ? "" : "the first, ", mistake_);
        if (notes != nullptr && !unused_.empty())
            add_note(*notes, "prompt file {}: {} of its prompts {} not used; the command's options are",
                     path_, fmt::join(unused_, ", "), unused_.size() == 1 ? "is" : "are");
        return std::move(read_);
    }

  private:
    void read_lines(const std::string& text) {
        std::size_t number = 0;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t end = std::min(text.find('\n', at), text.size());
            const std::string_view line = std::string_view(text).substr(at, end - at);
            at = end + 1;
            ++number;
            if (line.find_first_not_of(spaces) == std::string_view::npos) continue;
            const json entry = json::parse(line, nullptr, false);
            const std::string where = fmt::format("line {}", number);
            if (entry.is_discarded())
                skip(line_mistake(line), where);
            else
                add(entry, where);
        }
    }
    void add(const json& entry, const std::string& where) {
        auto made = parse_prompt(entry, ordinal_, unused_);
        if (!made.ok()) return skip(made.error().message, where);
        ++ordinal_;
        read_.push_back(std::move(made).value());
    }
    void skip(const std::string& mistake, const std::string& where) {
        if (skipped_++ == 0) mistake_ = where + ": " + mistake;
        ++ordinal_;
    }

    const std::string& path_;
    std::vector<Conversation> read_;
    std::set<std::string> unused_;
    std::string mistake_;  ///< the first
    std::size_t ordinal_ = 0, skipped_ = 0;
};

/// Takes from the papers' tasks in turn, and within a task from its categories in turn.
std::vector<Conversation> select_balanced(std::vector<Conversation> all, std::size_t limit) {
    std::map<std::string, int> in_category;
    std::vector<int> turn;  // of each conversation, its place in its category
    std::vector<std::string> tasks;
    std::vector<std::vector<std::size_t>> members;
    for (std::size_t i = 0; i < all.size(); ++i) {
        turn.push_back(in_category[all[i].category]++);
        const std::string task = task_of_category(all[i].category);
        const auto found = std::find(tasks.begin(), tasks.end(), task);
        const std::size_t t = found - tasks.begin();
        if (found == tasks.end()) {
            tasks.push_back(task);
            members.emplace_back();
        }
        members[t].push_back(i);
    }
    for (std::vector<std::size_t>& member : members)
        std::ranges::stable_sort(member, {}, [&](std::size_t i) { return turn[i]; });
    std::vector<std::size_t> chosen;
    for (std::size_t pass = 0; chosen.size() < limit; ++pass) {
        const std::size_t before = chosen.size();
        for (const auto& member : members) {
            if (pass < member.size() && chosen.size() < limit) chosen.push_back(member[pass]);
        }
        if (chosen.size() == before) break;
    }
    std::sort(chosen.begin(), chosen.end());
    std::vector<Conversation> out;
    out.reserve(chosen.size());
    for (const std::size_t i : chosen) out.push_back(std::move(all[i]));
    return out;
}

/// Numbers the selected conversations and their turns.
void number(std::vector<Conversation>& conversations) {
    int index = 0, ordinal = 0;
    for (Conversation& one : conversations) {
        one.index = index++;
        one.first_ordinal = ordinal;
        ordinal += static_cast<int>(one.turns.size());
    }
}

std::string hash_prompts(const std::vector<Conversation>& conversations) {
    std::string text;
    const auto add = [&](const std::string& part) { text += fmt::format("{}:{}", part.size(), part); };
    for (const Conversation& one : conversations) {
        add(one.id);
        if (!one.system.empty()) add("system " + one.system);
        for (const ChatMessage& message : one.history) add(message.role + " " + message.content);
        for (std::size_t turn = 0; turn < one.turns.size(); ++turn)
            add(one.recording ? fmt::format("{}", fmt::join(one.recorded_tokens(turn), " "))
                              : one.turns[turn]);
    }
    return fmt::format("{:016x}", fnv1a(text));
}

Result<std::vector<Conversation>> read_recorded_prompts(const std::string& path) {
    DS_ASSIGN(const auto recording, DecodeRecording::open(path));
    const std::vector<std::size_t> place = conversation_of_prompts(recording->prompts());
    std::vector<Conversation> all(place.empty() ? 0 : *std::ranges::max_element(place) + 1);
    for (std::size_t p = 0; p < place.size(); ++p) {
        const RecordedPrompt& prompt = recording->prompts()[p];
        Conversation& one = all[place[p]];
        one.id = prompt.id;
        one.category = prompt.category;
        one.recording = recording;
        one.recorded.push_back(p);
        one.turns.emplace_back();
    }
    return all;
}

std::vector<Conversation> select(std::vector<Conversation> all, int limit, bool balanced) {
    const std::size_t wanted = limit > 0 ? limit : all.size();
    if (balanced) all = select_balanced(std::move(all), wanted);
    if (all.size() > wanted) all.resize(wanted);
    number(all);
    return all;
}

}  // namespace

std::vector<TokenId> Conversation::recorded_tokens(std::size_t turn) const {
    const RecordedPrompt& prompt = recording->prompts()[recorded[turn]];
    std::vector<TokenId> tokens = recording->tokens(prompt);
    tokens.resize(prompt.prompt_tokens);
    return tokens;
}

std::string Conversation::hash() const {
    return recording ? recording->prompts()[recorded.front()].hash : prompt_hash(turns.front());
}

Result<std::vector<Conversation>> read_prompt_file(const std::string& path, int limit, bool balanced,
                                                   Notes* notes) {
    DS_ASSIGN(const std::string text, read_all(path));
    PromptReader reader(path);
    reader.read(text);
    DS_ASSIGN(std::vector<Conversation> all, reader.take(notes));
    return select(std::move(all), limit, balanced);
}

Result<PromptSet> read_prompts(const RunConfig& config) {
    PromptSet set;
    std::error_code error;
    if (config.prompts_file.empty()) {
        set.conversations = {Conversation{"0", "", {config.prompt}, ""}};
    } else if (std::filesystem::exists(config.prompts_file + "/trace.json", error)) {
        if (config.raw || !config.system.empty() || !config.template_switches.empty())
            return bad_input(
                "--prompts {}: a recording has whole prompts; leave out --raw, --system and --template",
                config.prompts_file);
        DS_ASSIGN(set.conversations, read_recorded_prompts(config.prompts_file));
        set.conversations = select(std::move(set.conversations), config.limit, config.balanced);
    } else {
        DS_ASSIGN(set.conversations,
                  read_prompt_file(config.prompts_file, config.limit, config.balanced, &set.notes));
    }
    if (config.raw && !config.system.empty())
        return bad_input(
            "--system {}: --raw uses no chat template, so there is no system turn; use one of the two",
            config.system);
    std::size_t own = 0;
    for (Conversation& one : set.conversations)
        if (one.system.empty())
            one.system = config.system;
        else
            ++own;
    if (own > 0 && !config.system.empty())
        add_note(set.notes,
                 "prompt file {}: {} of {} prompts keep their own system turn; --system is for the others",
                 config.prompts_file, own, set.conversations.size());
    set.total = static_cast<int>(set.conversations.size());
    set.hash = hash_prompts(set.conversations);
    const Shard& shard = config.shard;
    if (shard.count > set.total)
        return bad_input(
            "--shard {}/{}: {} conversation{} can't fill {} shards; use at most {}, or raise --limit",
            shard.index, shard.count, set.total, set.total == 1 ? "" : "s", shard.count, set.total);
    std::erase_if(set.conversations, [&](const Conversation& one) { return !shard.has(one.index); });
    return set;
}

}  // namespace draftscope
