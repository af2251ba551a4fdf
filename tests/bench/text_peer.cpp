// Converts text to ids and messages to prompts with the engine, for compare_text.py. It reads one JSON
// request per line from stdin and writes one JSON answer per line to stdout.
// - Request {"template": "...", "messages": [["user", "..."]], "bos": "<s>", "eos": "</s>",
//   "switches": ["KEY=VALUE"]}: answer
//   {"text": "..."}
// - Request {"model": "FILE.gguf or folder with tokenizer.json", "texts": [...]}: answer {"ids": [[...]],
//   "plain": [[...]]}
// - On an error: answer {"error": "..."}
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/chat_template/chat_template.h"
#include "engine/formats/gguf.h"
#include "engine/formats/gguf_model.h"
#include "engine/formats/hf_folder.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

Result<Json> render(const Json& request) {
    const ChatTemplate chat =
        ChatTemplate::from_source(request["template"].get<std::string>(), "template",
                                  {request["bos"].get<std::string>(), request["eos"].get<std::string>()});
    std::vector<ChatMessage> messages;
    for (const Json& turn : request["messages"]) messages.push_back({turn[0], turn[1]});
    DS_ASSIGN(const auto switches, normalise_switches(request.value("switches", std::vector<std::string>())));
    const ChatTemplate switched = chat.with_switches(switches);
    if (!switched.problem().empty()) return bad_input("{}", switched.problem());
    DS_ASSIGN(const std::string text, switched.render(messages));
    return Json{{"text", text}};
}

Result<TokenizerSpec> read_spec(const std::string& path) {
    if (std::filesystem::is_directory(path)) {
        DS_ASSIGN(const JsonFile config, JsonFile::read(path + "/config.json", "a model folder"));
        return read_hf_tokenizer(path, config);
    }
    DS_ASSIGN(const GgufFile file, GgufFile::open(path));
    Notes notes;
    return read_gguf_tokenizer(file, notes);
}

Result<Json> encode(const Json& request) {
    DS_ASSIGN(TokenizerSpec spec, read_spec(request["model"].get<std::string>()));
    DS_ASSIGN(const auto tokenizer, Tokenizer::create(std::move(spec)));
    Json out{{"ids", Json::array()}, {"plain", Json::array()}};
    for (const Json& text : request["texts"]) {
        out["ids"].push_back(tokenizer->encode(text.get<std::string>(), true));
        out["plain"].push_back(tokenizer->encode(text.get<std::string>(), false));
    }
    return out;
}

}  // namespace
}  // namespace draftscope

int main() {
    using namespace draftscope;
    for (std::string line; std::getline(std::cin, line);) {
        const auto request = nlohmann::json::parse(line);
        const auto answer = request.contains("template") ? render(request) : encode(request);
        std::cout << (answer.ok() ? *answer : nlohmann::json{{"error", answer.error().message}})
                         .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                  << std::endl;
    }
}
