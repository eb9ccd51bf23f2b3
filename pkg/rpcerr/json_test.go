package rpcerr_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

func TestAnErrorOverHTTPHasTheNameOfItsStatus(t *testing.T) {
	t.Parallel()
	assert.JSONEq(t, `{"error": {"code": 404, "status": "NOT_FOUND", "message": "no projects/p/runs/r", "details": [
		{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RESOURCE_NOT_FOUND", "domain": "evalfleet.dev", "metadata": {"resource": "projects/p/runs/r"}},
		{"@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceName": "projects/p/runs/r"}
	]}}`, string(rpcerr.JSON(rpcerr.ToStatus(rpcerr.ResourceNotFound("projects/p/runs/r")), http.StatusNotFound)))
	assert.JSONEq(t, `{"error": {"code": 499, "status": "CANCELLED", "message": "m"}}`, string(rpcerr.JSON(status.New(codes.Canceled, "m"), 499)))
}
