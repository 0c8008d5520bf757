// A model with a weight, state that two entry points share, a dynamic dim and an assert:
//   forward(x, ids): y = x * weight + total; positive = ids > 0; count += 1; total += sum(x, 0); assert max(total) < 100
//   decode(x): gives count and x; count += 1
module @model {
  util.global private @w0 = #flow.parameter.named<"model"::"weight"> : tensor<4xf32>
  func.func @forward(%count: !torch.vtensor<[],si64>, %total: !torch.vtensor<[4],f32>, %x: !torch.vtensor<[?,4],f32>, %ids: !torch.vtensor<[?],si64>) -> (!torch.vtensor<[?,4],f32>, !torch.vtensor<[?],i1>, !torch.vtensor<[],si64>, !torch.vtensor<[4],f32>, !torch.vtensor<[],i1>) attributes {torch.assume_strict_symbolic_shapes} {
    %w0 = util.global.load @w0 : tensor<4xf32>
    %w = torch_c.from_builtin_tensor %w0 : tensor<4xf32> -> !torch.vtensor<[4],f32>
    %int1 = torch.constant.int 1
    %int0 = torch.constant.int 0
    %f100 = torch.constant.float 1.0e+02
    %false = torch.constant.bool false
    %none = torch.constant.none
    %dims = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
    %y0 = torch.aten.mul.Tensor %x, %w : !torch.vtensor<[?,4],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor<[?,4],f32>
    %y = torch.aten.add.Tensor %y0, %total, %int1 : !torch.vtensor<[?,4],f32>, !torch.vtensor<[4],f32>, !torch.int -> !torch.vtensor<[?,4],f32>
    %b = torch.aten.gt.Scalar %ids, %int0 : !torch.vtensor<[?],si64>, !torch.int -> !torch.vtensor<[?],i1>
    %c = torch.aten.add.Scalar %count, %int1, %int1 : !torch.vtensor<[],si64>, !torch.int, !torch.int -> !torch.vtensor<[],si64>
    %s = torch.aten.sum.dim_IntList %x, %dims, %false, %none : !torch.vtensor<[?,4],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4],f32>
    %t = torch.aten.add.Tensor %total, %s, %int1 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.int -> !torch.vtensor<[4],f32>
    %m = torch.aten.max %t : !torch.vtensor<[4],f32> -> !torch.vtensor<[],f32>
    %ok = torch.aten.lt.Scalar %m, %f100 : !torch.vtensor<[],f32>, !torch.float -> !torch.vtensor<[],i1>
    return %y, %b, %c, %t, %ok : !torch.vtensor<[?,4],f32>, !torch.vtensor<[?],i1>, !torch.vtensor<[],si64>, !torch.vtensor<[4],f32>, !torch.vtensor<[],i1>
  }
  func.func @decode(%count: !torch.vtensor<[],si64>, %x: !torch.vtensor<[4],f32>) -> (!torch.vtensor<[],si64>, !torch.vtensor<[4],f32>, !torch.vtensor<[],si64>) attributes {torch.assume_strict_symbolic_shapes} {
    %int1 = torch.constant.int 1
    %c = torch.aten.add.Scalar %count, %int1, %int1 : !torch.vtensor<[],si64>, !torch.int, !torch.int -> !torch.vtensor<[],si64>
    return %count, %x, %c : !torch.vtensor<[],si64>, !torch.vtensor<[4],f32>, !torch.vtensor<[],si64>
  }
}
