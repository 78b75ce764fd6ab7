#include "braid/io/model_lookup.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "braid/base/error.h"
#include "braid/base/similar.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDemo = "smollm2-135m-instruct-q4_1.gguf";

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return !path.empty() && fs::is_directory(path, ignored);
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return !path.empty() && fs::is_regular_file(path, ignored);
}

// Names in a folder, sorted; none for an unreadable folder.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  line.erase(line.find_last_not_of(" \r\t") + 1);
  return line;
}

// GGUF files below a folder with `part` in their names; for a split model the first file.
std::vector<std::string> gguf_files(const fs::path& folder, const std::string& part) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = lower(at->path().filename().string());
    if (!name.ends_with(".gguf") || name.find(lower(part)) == std::string::npos) continue;
    const size_t split = name.find("-of-");
    if (split != std::string::npos && !name.substr(0, split).ends_with("-00001")) continue;
    if (name.find("mmproj") == std::string::npos) files.push_back(at->path().string());
  }
  std::ranges::sort(files);
  return files;
}

// A repository's name: "org/repo@revision:file".
struct RepositoryName {
  std::string id, revision, file;
};

std::optional<RepositoryName> parse_repository(std::string name) {
  for (const std::string_view prefix : {"https://huggingface.co/", "hf.co/", "hf://"}) {
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  }
  RepositoryName out;
  if (const size_t at = name.find('@'); at != std::string::npos) {
    out.revision = name.substr(at + 1);
    name.resize(at);
  }
  std::string& last = out.revision.empty() ? name : out.revision;
  if (const size_t at = last.find(':'); at != std::string::npos) {
    out.file = last.substr(at + 1);
    last.resize(at);
  }
  const size_t slash = name.find('/');
  if (slash == 0 || slash == std::string::npos || slash + 1 == name.size() ||
      name.find('/', slash + 1) != std::string::npos || name.find("..") != std::string::npos ||
      out.revision.find("..") != std::string::npos || name.starts_with('.')) {
    return {};
  }
  out.id = name;
  return out;
}

fs::path repository_folder(const ModelStores& stores, const std::string& id) {
  if (stores.hub.empty()) return {};
  std::string name = "models--" + id;
  name.replace(name.find('/'), 1, "--");
  return stores.hub / name;
}

// The snapshot named by a revision: a branch, a tag, a commit or a commit's beginning.
fs::path snapshot_of(const fs::path& repository, const std::string& revision) {
  const fs::path snapshots = repository / "snapshots";
  const std::string wanted = revision.empty() ? "main" : revision;
  if (const std::string commit = first_line(repository / "refs" / wanted);
      !commit.empty() && is_folder(snapshots / commit)) {
    return snapshots / commit;
  }
  const std::vector<std::string> there = names_in(snapshots);
  if (revision.empty()) return there.size() == 1 ? snapshots / there[0] : fs::path();
  std::vector<std::string> fit;
  for (const std::string& name : there) {
    if (name.starts_with(revision)) fit.push_back(name);
  }
  return fit.size() == 1 ? snapshots / fit[0] : fs::path();
}

std::string fetch_hint(const ModelStores& stores, const RepositoryName& repository) {
  std::string command = "hf download " + repository.id;
  if (!repository.revision.empty()) command += " --revision " + repository.revision;
  return stores.hub_client
             ? fmt::format("`{}` fetches it", command)
             : fmt::format("`{}` fetches it; hf comes with PyPI's huggingface_hub", command);
}

// The model in a snapshot: the folder itself, or a GGUF file in it.
std::string model_in(const fs::path& snapshot, const std::string& name, const std::string& file,
                     const std::string& hint) {
  if (file.empty() && is_file(snapshot / "config.json")) {
    const std::vector<std::string> names = names_in(snapshot);
    const bool weights = std::ranges::any_of(
        names, [](const std::string& n) { return n.find("safetensors") != std::string::npos; });
    if (weights || gguf_files(snapshot, "").empty()) return snapshot.string();
  }
  const std::vector<std::string> files = gguf_files(snapshot, file);
  if (files.size() == 1) return files[0];
  if (files.empty()) {
    fail(ErrorCode::kNotFound, "{}: {} holds no {}; {}", name, snapshot.string(),
         file.empty() ? "config.json and no .gguf file" : "GGUF file named '" + file + "'", hint);
  }
  std::string names;
  for (const std::string& path : files) {
    names += (names.empty() ? "" : ", ") + fs::path(path).filename().string();
  }
  fail(ErrorCode::kInvalidArgument, "{} has {} GGUF files: add :NAME to say which ({})", name,
       files.size(), names);
}

std::optional<std::string> find_in_hub(const RepositoryName& repository, const std::string& name,
                                       const ModelStores& stores) {
  const fs::path folder = repository_folder(stores, repository.id);
  if (!is_folder(folder)) return {};
  const std::string hint = fetch_hint(stores, repository);
  const fs::path snapshot = snapshot_of(folder, repository.revision);
  if (snapshot.empty()) {
    std::string there;
    for (const std::string& revision : names_in(folder / "refs")) {
      there += (there.empty() ? "" : ", ") + revision;
    }
    fail(ErrorCode::kNotFound, "{}: revision '{}' is not in {} (there: {}); {}", name,
         repository.revision.empty() ? "main" : repository.revision, folder.string(),
         there.empty() ? "none" : there, hint);
  }
  return model_in(snapshot, name, repository.file, hint);
}

std::optional<std::string> find_in_braid(const std::string& name, const ModelStores& stores) {
  if (stores.braid.empty() || name.find('/') != std::string::npos) return {};
  for (const char* ending : {"", ".gguf"}) {
    const fs::path path = stores.braid / (name + ending);
    if (is_file(path) || is_folder(path)) return path.string();
  }
  std::vector<std::string> fit;
  for (const std::string& there : names_in(stores.braid)) {
    if (lower(there).starts_with(lower(name))) fit.push_back(there);
  }
  if (fit.size() > 1) {
    fail(ErrorCode::kInvalidArgument, "'{}' begins the names of several models in {}: {}, {}{}",
         name, stores.braid.string(), fit[0], fit[1], fit.size() > 2 ? ", ..." : "");
  }
  if (fit.empty()) return {};
  return (stores.braid / fit[0]).string();
}

// ollama keeps a manifest for each tag; the layer that is the model names a blob.
std::optional<std::string> find_in_ollama(std::string name, const ModelStores& stores) {
  std::string tag = "latest";
  if (const size_t at = name.rfind(':');
      at != std::string::npos && at > name.find_last_of('/') + 1) {
    tag = name.substr(at + 1);
    name.resize(at);
  }
  const auto slashes = std::ranges::count(name, '/');
  if (slashes == 0) name = "registry.ollama.ai/library/" + name;
  if (slashes == 1) name = "registry.ollama.ai/" + name;
  for (const fs::path& store : stores.ollama) {
    const fs::path manifest = store / "manifests" / name / tag;
    if (name.find("..") != std::string::npos || !is_file(manifest)) continue;
    std::ifstream file(manifest);
    const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("layers") || !json["layers"].is_array()) {
      fail(ErrorCode::kMalformed, "{}: is no manifest of ollama's", manifest.string());
    }
    for (const auto& layer : json["layers"]) {
      if (!layer.is_object() ||
          layer.value("mediaType", "") != "application/vnd.ollama.image.model") {
        continue;
      }
      std::string digest = layer.value("digest", "");
      if (digest.find('/') != std::string::npos) continue;
      std::ranges::replace(digest, ':', '-');
      const fs::path blob = store / "blobs" / digest;
      if (is_file(blob)) return blob.string();
      fail(ErrorCode::kNotFound, "{}: its model {} is not there", manifest.string(), blob.string());
    }
  }
  return {};
}

// "smollm2-135m-instruct-q4_1" where "smolm" was typed.
std::string near_name(const std::string& name, const ModelStores& stores) {
  std::vector<std::string> names = names_in(stores.braid);
  for (const std::string& folder : names_in(stores.hub)) {
    constexpr std::string_view kPrefix = "models--";
    if (!folder.starts_with(kPrefix)) continue;
    std::string id = folder.substr(kPrefix.size());
    if (const size_t at = id.find("--"); at != std::string::npos) id.replace(at, 2, "/");
    names.push_back(std::move(id));
  }
  const auto near = nearest_name(name, names);
  return near ? fmt::format("; did you mean {}?", *near) : "";
}

}  // namespace

ModelStores model_stores(const Environment& environment) {
  const auto path = [&](const char* name) {
    const char* value = environment(name);
    return fs::path(value == nullptr ? "" : value);
  };
  const auto below = [](const fs::path& folder, const char* rest) {
    return folder.empty() ? folder : folder / rest;
  };
  const fs::path home = path("HOME");
  const fs::path cache =
      path("XDG_CACHE_HOME").empty() ? below(home, ".cache") : path("XDG_CACHE_HOME");
  ModelStores stores{
      .braid = below(cache, "braid/models"), .hub = path("HF_HUB_CACHE"), .ollama = {}};
  if (stores.hub.empty()) stores.hub = path("HUGGINGFACE_HUB_CACHE");
  if (stores.hub.empty()) stores.hub = below(path("HF_HOME"), "hub");
  if (stores.hub.empty()) stores.hub = below(cache, "huggingface/hub");
  if (const fs::path ollama = path("OLLAMA_MODELS"); !ollama.empty()) {
    stores.ollama.push_back(ollama);
  } else {
    stores.ollama = {below(home, ".ollama/models"), "/usr/share/ollama/.ollama/models"};
  }
  std::istringstream folders(path("PATH").string());
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty() && is_file(fs::path(folder) / "hf")) stores.hub_client = true;
  }
  return stores;
}

std::string find_model(const std::string& name, const ModelStores& stores) {
  std::error_code ignored;
  if (name.empty()) return name;
  if (fs::exists(name, ignored)) {
    const bool cached =
        is_folder(fs::path(name) / "snapshots") && !is_file(fs::path(name) / "config.json");
    if (!cached) return name;
    const fs::path snapshot = snapshot_of(name, "");
    if (snapshot.empty()) {
      fail(ErrorCode::kNotFound,
           "{}: is a repository of Hugging Face's cache; name one of its "
           "snapshots: {}/snapshots/...",
           name, name);
    }
    return model_in(snapshot, name, "", "its download did not end");
  }
  const auto repository = parse_repository(name);
  if (repository) {
    if (auto path = find_in_hub(*repository, name, stores)) return *std::move(path);
  }
  if (auto path = find_in_braid(name, stores)) return *std::move(path);
  if (auto path = find_in_ollama(name, stores)) return *std::move(path);
  // A path by its looks.
  if (name.starts_with('/') || name.starts_with('.') || name.starts_with('~') ||
      name.ends_with(".gguf") || name.ends_with(".safetensors") ||
      (!repository && name.find('/') != std::string::npos)) {
    fail(ErrorCode::kNotFound, "{}: no such file{}", name, near_name(name, stores));
  }
  if (repository) {
    fail(ErrorCode::kNotFound, "{}: no such path, and not in Hugging Face's cache ({}){}; {}", name,
         stores.hub.string(), near_name(name, stores), fetch_hint(stores, *repository));
  }
  fail(ErrorCode::kNotFound,
       "{}: no such path, and no model of that name in {} or ollama's store{}", name,
       stores.braid.string(), near_name(name, stores));
}

std::optional<std::string> demo_model(const ModelStores& stores) {
  const fs::path path = stores.braid / kDemo;
  return is_file(path) ? std::optional(path.string()) : std::nullopt;
}

}  // namespace braid
