#include "app/jobs/run/prompt_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "app/jobs/replay/replay_job.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "engine/heads/artefact.h"
#include "profiler/stats/bench_table.h"

namespace draftscope {
namespace {

using nlohmann::json;

constexpr std::string_view example_line = R"({"prompt": "Name three rivers."})";

std::string read_id(const json& line, std::size_t ordinal) {
    for (const char* key : {"id", "question_id", "task_id"}) {
        const auto found = line.find(key);
        if (found == line.end()) continue;
        if (found->is_string()) return found->get<std::string>();
        if (found->is_number()) return found->dump();
    }
    return std::to_string(ordinal);
}

/// Returns the reason why a line is not JSON: another encoding, plain text, or a syntax error.
Error wrong_line(const std::string& line, const std::string& where) {
    if (line.find('\0') != std::string::npos || line.starts_with("\xff\xfe") || line.starts_with("\xfe\xff"))
        return bad_input("{}: is UTF-16; convert the file: iconv -f UTF-16 -t UTF-8", where);
    if (const std::size_t at = valid_utf8_prefix(line); at < line.size())
        return bad_input(
            "{}: is not UTF-8 (byte 0x{:02x} at column {}); if it is Latin-1, convert the file: iconv -f "
            "LATIN1 -t UTF-8",
            where, static_cast<unsigned char>(line[at]), at + 1);
    if (line.find('{') == line.find_first_not_of(" \t\r\xef\xbb\xbf"))
        return bad_input("{}: not valid JSON; each line must be one object, as {}", where, example_line);
    return bad_input("{}: plain text instead of a JSON object; each line must look like {}", where,
                     example_line);
}

Result<Conversation> parse_line(const json& line, std::size_t ordinal, const std::string& where) {
    if (!line.is_object())
        return bad_input("{}: not a JSON object; each line must look like {}", where, example_line);
    Conversation made;
    made.id = read_id(line, ordinal);
    const auto category = line.find("category");
    if (category != line.end() && category->is_string()) made.category = category->get<std::string>();
    // HumanEval's lines have no category, GSM8K's have a question and its answer.
    if (made.category.empty() && made.id.starts_with("HumanEval/")) made.category = "HumanEval";
    if (const auto question = line.find("question"); question != line.end() && line.contains("answer")) {
        if (!question->is_string() || question->get_ref<const std::string&>().empty())
            return bad_input("{}: question is not a text", where);
        if (made.category.empty()) made.category = "GSM8K";
        made.turns.push_back(question->get<std::string>());
        return made;
    }
    if (const auto prompt = line.find("prompt"); prompt != line.end()) {
        if (!prompt->is_string()) return bad_input("{}: prompt is not a string", where);
        made.turns.push_back(prompt->get<std::string>());
        if (made.turns.back().empty()) return bad_input("{}: prompt is empty", where);
        return made;
    }
    const auto turns = line.find("turns");
    if (turns == line.end() || !turns->is_array() || turns->empty()) {
        std::string found;
        for (const auto& [key, value] : line.items()) found += (found.empty() ? "" : ", ") + key;
        return bad_input("{}: has {}; needs a prompt or a non-empty list turns, as {}", where,
                         found.empty() ? "no field" : found, example_line);
    }
    for (const json& turn : *turns) {
        if (!turn.is_string()) return bad_input("{}: an entry of turns is not a string", where);
        made.turns.push_back(turn.get<std::string>());
        if (made.turns.back().empty()) return bad_input("{}: an entry of turns is empty", where);
    }
    return made;
}

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

Result<std::vector<Conversation>> read_prompt_file(const std::string& path, int limit, bool balanced) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error))
        return bad_input("prompt file {}: is a folder; name a file with a JSON object per line", path);
    std::ifstream file(path);
    if (!file) return bad_input("prompt file {}: cannot be opened", path);
    std::vector<Conversation> all;
    std::string text;
    for (std::size_t number = 1; std::getline(file, text); ++number) {
        if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
        const json line = json::parse(text, nullptr, false);
        const std::string where = fmt::format("prompt file {}, line {}", path, number);
        if (line.is_discarded()) return wrong_line(text, where);
        DS_ASSIGN(Conversation conversation, parse_line(line, all.size(), where));
        all.push_back(std::move(conversation));
    }
    if (all.empty()) return bad_input("prompt file {}: contains no prompt", path);
    return select(std::move(all), limit, balanced);
}

Result<PromptSet> read_prompts(const RunConfig& config) {
    PromptSet set;
    std::error_code error;
    if (config.prompts_file.empty()) {
        set.conversations = {Conversation{"0", "", {config.prompt}, ""}};
    } else if (std::filesystem::exists(config.prompts_file + "/trace.json", error)) {
        if (config.raw || !config.system.empty())
            return bad_input("--prompts {}: a recording has whole prompts; leave out --raw and --system",
                             config.prompts_file);
        DS_ASSIGN(set.conversations, read_recorded_prompts(config.prompts_file));
        set.conversations = select(std::move(set.conversations), config.limit, config.balanced);
    } else {
        DS_ASSIGN(set.conversations, read_prompt_file(config.prompts_file, config.limit, config.balanced));
    }
    if (config.raw && !config.system.empty())
        return bad_input(
            "--system {}: --raw uses no chat template, so there is no system turn; use one of the two",
            config.system);
    for (Conversation& one : set.conversations) one.system = config.system;
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
