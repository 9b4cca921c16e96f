package predict_test

import (
	"testing"

	"github.com/tidemark-lab/tidemark/nn/models"
)

func parse(t *testing.T, data []byte) models.Config {
	t.Helper()
	c, err := models.ParseConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
