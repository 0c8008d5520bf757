"""Serves bundles over the Open Inference Protocol v2: HTTP and gRPC in this process, programs in workers.

`serving.run(...)` is what `aotpipe serve` calls. Of a request, `protocol` reads the JSON and the binary
tensors, `scheduler` queues and batches the calls, `pool` sends them to `worker` processes through `channel`
(a socket for what is small, shared memory for tensors), `repository` knows which models are ready, `http`
and `grpc` answer, `metrics` counts.

Neither torch nor a compiler is imported. The packages of the extra `serve` are needed: orjson, uvicorn,
httptools, uvloop, prometheus-client, grpcio, protobuf.
"""
