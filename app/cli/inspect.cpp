#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/cli.h"
#include "app/cli/tables.h"
#include "app/jobs/inspect/inspection.h"
#include "base/fields.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct InspectArguments {
    std::string path, target, fix, layout = "sglang";
    bool json = false;
};

json facts_json(const std::vector<Fact>& facts) {
    json out = json::object();
    for (const Fact& fact : facts) {
        std::string key = fact.name;
        std::ranges::replace(key, ' ', '_');
        out[key] = fact.value;
    }
    return out;
}

void print_facts(const char* title, const std::vector<Fact>& facts) {
    std::size_t width = 14;
    for (const Fact& fact : facts) width = std::max(width, fact.name.size());
    if (*title != '\0' && !facts.empty()) print("\n{}:\n", title);
    for (const Fact& fact : facts)
        if (!fact.text.empty()) print("  {:<{}}  {}\n", fact.name, width, fact.text);
}

void print_lines(const std::string& title, const Notes& lines) {
    if (!lines.empty()) print("\n{}:\n", title);
    for (const std::string& line : lines) print("  {}\n", line);
}

void print_inspection(const Inspection& found) {
    print("{}: {}\n", found.path, found.kind);
    print_facts("", found.facts);
    print_facts("Compared with the target", found.differences);
    if (!found.stacks.empty()) print("\nLoads in:\n");
    for (const StackUse& use : found.stacks)
        print("  {:<11} {:<4} {}\n", use.stack, use.loads ? "yes" : "no", use.how);
    print_lines("Odd", found.odd);
    print_lines("Not read", found.unread);
    print_lines("Next", found.next);
}

constexpr auto inspection_fields =
    join(DS_FIELDS(Inspection, path, kind), as(facts_json, DS_FIELDS(Inspection, facts, differences)),
         as(list_of(DS_FIELDS(StackUse, stack, loads, how)), DS_FIELDS(Inspection, stacks)),
         DS_FIELDS(Inspection, odd, unread, next));

Result<int> do_inspect(const InspectArguments& options) {
    if (!options.fix.empty()) {
        DS_ASSIGN(const Notes changes,
                  write_in_layout(options.path, options.target, options.layout, options.fix));
        if (!options.json) return print_lines(options.fix, changes), 0;
        print_document({{"path", options.path}, {"out", options.fix}, {"changes", changes}});
        return 0;
    }
    DS_ASSIGN(const Inspection found, inspect_path(options.path, options.target));
    options.json ? print_document(write_fields(inspection_fields, found)) : print_inspection(found);
    return 0;
}

}  // namespace

void add_inspect(CLI::App& program, Action& action) {
    auto options = std::make_shared<InspectArguments>();
    CLI::App* command = program.add_subcommand(
        "inspect",
        "Say what a checkpoint, GGUF, head or ranking file, recording or capture is, and what is odd");
    command->footer("Example: draftscope inspect path/to/checkpoint --target my-model.gguf");
    command->add_option("path", options->path, "file or folder, or an id of the hub's local cache")
        ->required();
    command->add_option("--target", options->target, "compare with this target model");
    CLI::Option* fix = command->add_option(
        "--fix", options->fix, "write an EAGLE checkpoint to this new folder, in the layout of --layout");
    command->add_option("--layout", options->layout, "sglang, vllm or draftscope")
        ->check(CLI::IsMember({"sglang", "vllm", "draftscope"}))
        ->needs(fix)
        ->capture_default_str();
    command->add_flag("--json", options->json, "print one JSON document on stdout");
    command->callback([options, &action] { action = [options] { return do_inspect(*options); }; });
}

}  // namespace draftscope::cli
