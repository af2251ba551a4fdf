#include "app/jobs/commands/commands.h"

namespace draftscope {

CompareReport make_compare_report(const CompareChoice& choice, const Snapshot& a, const Snapshot& b) {
    CompareReport out;
    out.choice = choice;
    out.rounds_a = a.rounds.size();
    out.rounds_b = b.rounds.size();
    CompareOptions options;
    options.force = choice.force;
    auto compared = compare_runs(a, choice.a.run_id, b, choice.b.run_id, options);
    if (compared.ok()) {
        out.comparison = std::move(*compared);
        return out;
    }
    out.refusal = compared.error().message;
    const RunRow* first = a.run(choice.a.run_id);
    const RunRow* second = b.run(choice.b.run_id);
    out.may_force = !choice.force && first != nullptr && second != nullptr &&
                    !forbidding_text(run_differences(*first, *second)).empty();
    return out;
}

}  // namespace draftscope
