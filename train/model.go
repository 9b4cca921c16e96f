package train

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tidemark-lab/tidemark/nn/models"
)

// ModelFolder is where a model's config.json and weights lie: a folder as Hugging
// Face's libraries save it, or the newest save in the folder of a training, which
// is such a folder too.
func ModelFolder(dir string) (string, error) {
	if _, err := os.Stat(filepath.Join(dir, configFile)); err == nil {
		return dir, nil
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", fmt.Errorf("%s is a file; name the folder of a model", dir)
	}
	if path, err := latest(dir); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s holds no model (%s with weights) and no saved training", dir, configFile)
}

// ReadModelConfig reads the config of the model in a folder.
func ReadModelConfig(dir string) (models.Config, error) {
	path, err := ModelFolder(dir)
	if err != nil {
		return models.Config{}, err
	}
	return models.ReadConfig(filepath.Join(path, configFile))
}
