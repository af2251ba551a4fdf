#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/notes.h"
#include "base/result.h"

namespace draftscope {

/// One line of an inspection: a name, a text for people, and the value for JSON.
struct Fact {
    std::string name, text;
    nlohmann::json value;
};
/// How a serving stack takes a file: its flags, or what prevents it.
struct StackUse {
    std::string stack;
    bool loads = false;
    std::string how;
};

/// What a file is, as far as it is known without loading its weights.
struct Inspection {
    std::string path;
    std::string kind;  ///< "EAGLE-3 drafter, layout SpecForge (SGLang)"
    std::vector<Fact> facts;
    std::vector<Fact> differences;  ///< from the target; the first names what is equal
    std::vector<StackUse> stacks;
    Notes odd;     ///< what was guessed, or is unusual or wrong
    Notes unread;  ///< what could not be read, and why
    Notes next;    ///< commands to go on with

    void add(const std::string& name, const std::string& text) { facts.push_back({name, text, text}); }
};

/// Inspects a checkpoint, GGUF file, head file, ranking, recording or capture, or a folder of such files. A
/// target ("" = none) is compared. Damaged files are inspected as far as possible; bad_input if nothing is
/// known.
Result<Inspection> inspect_path(const std::string& path, const std::string& target);

/// Writes an EAGLE checkpoint to the new folder `out`, in the layout of "sglang", "vllm" or "draftscope".
/// Returns a line for each change. `target`: its model, "" = none.
Result<Notes> write_in_layout(const std::string& path, const std::string& target, const std::string& layout,
                              const std::string& out);

}  // namespace draftscope
