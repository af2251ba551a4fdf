#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/draft/drafter.h"

/// The drafters' factories, which the registry lists. Each is defined in its drafter's file.
namespace draftscope {

Result<std::unique_ptr<Drafter>> make_none(const std::string& path, const Target& target,
                                           kernels::Exec& exec);
/// `path` is "" or parameters: "max=3,min=1,window=0,backoff=1".
Result<std::unique_ptr<Drafter>> make_ngram(const std::string& path, const Target& target,
                                            kernels::Exec& exec);
/// `path`: a folder or file in a published layout (docs/FORMATS.md), or "synthetic:NAME" for that synthetic
/// target. It may end in ",rope=target".
Result<std::unique_ptr<Drafter>> make_eagle2(const std::string& path, const Target& target,
                                             kernels::Exec& exec);
Result<std::unique_ptr<Drafter>> make_eagle3(const std::string& path, const Target& target,
                                             kernels::Exec& exec);
/// `path`: a folder or file in a published layout, or "synthetic:NAME".
Result<std::unique_ptr<Drafter>> make_medusa(const std::string& path, const Target& target,
                                             kernels::Exec& exec);
Result<std::unique_ptr<Drafter>> make_hydra(const std::string& path, const Target& target,
                                            kernels::Exec& exec);

}  // namespace draftscope
