#include "app/jobs/fit/own_run.h"

#include "app/jobs/replay/record_job.h"
#include "app/jobs/resolve/resolve.h"
#include "engine/draft/drafter_files.h"
#include "engine/draft/registry.h"
#include "engine/draft/vocabulary_pair.h"
#include "engine/formats/model_file.h"
#include "engine/recording/record_decode.h"

namespace draftscope {

Result<RecordedTarget> record_own_run(const FitConfig& config, const std::string& folder,
                                      const JobHooks& hooks) {
    RunConfig pair;
    pair.model = config.model;
    pair.drafter = config.drafter;
    pair.prompt = "fit";
    DS_ASSIGN(const ResolvedRun run, resolve_run(pair));
    DS_ASSIGN(const DrafterSource drafter,
              parse_drafter_source(run.drafter_path, find_drafter(run.drafter_id)->options));
    DS_ASSIGN(const ModelFile target, open_model_file(run.config.model));
    DS_ASSIGN(const ModelFile model, open_model_file(drafter.path));
    Notes notes;
    DS_TRY(check_vocabularies({drafter.path, model.tokenizer.get(), model.config.vocab},
                              {run.config.model, target.tokenizer.get(), target.config.vocab}, notes));
    say_notes(notes);
    RecordConfig record;
    record.run = config.own_run;
    record.run.model = drafter.path;
    record.run.threads = config.threads;
    if (const auto given = drafter.options.find("precision"); given != drafter.options.end())
        record.run.precision = given->second;
    record.out = folder;
    record.source = "draftscope fit";
    record.aux = "none";
    record.times = false;
    record.overwrite = true;
    DS_TRY(run_record(record, hooks));
    DS_TRY(hooks.check());
    return describe_target(target.config, target.tokenizer.get());
}

}  // namespace draftscope
