package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/daemon/daemontest"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	err := daemontest.Refused(t, &configuration{}, map[string]string{"EVALFLEET_LISTEN": "0.0.0.0:1"}, "")
	for _, name := range []string{"EVALFLEET_DATA_DIR", "EVALFLEET_TOKEN_FILE", "allow_remote"} {
		require.ErrorContains(t, err, name)
	}
}

func TestUnknownKeysAreFaults(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, daemontest.Refused(t, &configuration{}, nil, "modelgw:\n  attempt_timeot: 5s\n"), "attempt_timeot")
}

func TestServesAndStops(t *testing.T) {
	t.Parallel()
	program := daemontest.Start(t, &configuration{}, nil)
	program.AssertServing(modelv1.ModelService_ServiceDesc.ServiceName)
	_, err := modelv1.NewModelServiceClient(program.Stranger()).ListProviders(t.Context(), &modelv1.ListProvidersRequest{})
	assert.Equal(t, codes.Unauthenticated, rpcerr.Code(err))
	require.NotContains(t, err.Error(), program.TokenFile, "where the token is concerns no stranger")

	conn := program.Known()
	ref, err := blobv1.NewBlobServiceClient(conn).PutBlob(t.Context(), &blobv1.PutBlobRequest{
		Parent: "projects/default", Content: []byte(`{"sample": "a", "output": "from the store"}`),
	})
	require.NoError(t, err)
	answer, err := modelv1.NewModelServiceClient(conn).Generate(t.Context(), &modelv1.GenerateRequest{
		Parent: "projects/default", RequestId: "k", Model: "mockllm/model", ModelArgsJson: `{"script": "blob:` + ref.GetHash() + `"}`,
		Messages: []*modelv1.ChatMessage{chat.User("q")}, Attribution: attribution("a"),
	})
	require.NoError(t, err)
	assert.Equal(t, "from the store", answer.GetOutput().GetCompletion())
	_, err = modelv1.NewModelServiceClient(conn).Generate(t.Context(), &modelv1.GenerateRequest{
		Parent: "projects/other", Model: "mockllm/model", ModelArgsJson: `{"script": "blob:` + ref.GetHash() + `"}`,
	})
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err), "another project's body is not there: %v", err)
}

func attribution(sample string) *effectv1.Attribution { return &effectv1.Attribution{Sample: sample} }
