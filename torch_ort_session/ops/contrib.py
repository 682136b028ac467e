"""The operators of com.microsoft, by name and revision: onnx has no schemas of that domain to ask.

Source: the schemas registered in onnxruntime 1.32,
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Mapping

DOMAIN = "com.microsoft"

SOURCE_VERSION = "1.32"
"""The release of onnxruntime whose schemas are listed."""

_REVISION_1 = """
    Attention AttnLSTM BeamSearch BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu
    BifurcationDetector BitmaskBiasDropout BitmaskDropout BranchwiseRMSNorm CDist
    CausalConvWithState ComplexMul ComplexMulConj ConvStateReplay ConvTransposeWithDynamicPads
    CropAndResize DecoderAttention DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention
    DequantizeBFP DequantizeLinear DequantizeWithOrder DynamicQuantizeLSTM DynamicQuantizeMatMul
    DynamicSparseAttention DynamicTimeWarping EPContext EmbedLayerNormalization EngramGate
    ExpandDims FastGelu FusedConv FusedGemm FusedMatMul FusedMatMulActivation GatedAdd GatedDeltaNet
    GatedDeltaNetStateReplay GatedRMSNorm GatedRelativePositionBias GatherBlockQuantized GatherND
    GatherPacked Gelu GemmFastGelu GemmFloat8 GemmaRotaryEmbedding GreedySearch GridSample GroupNorm
    GroupQueryAttention HyperConnectionLowRankMix HyperConnectionPostMix HyperConnectionPreMix
    Inverse Irfft IsAllFinite LinearAttention LinearAttentionGate LongformerAttention
    MRotaryEmbedding Mamba2Verify MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight
    MatMulBnb4 MatMulFpQ4 MatMulInteger16 MatMulIntegerToFloat MatMulNBits MatMulNBitsMlp
    MatMulNBitsQLoRA MatMulNBitsQkv MatMulPacked MaxpoolWithMask MoE MoEGroupRouter MoEPacked
    MulInteger MultiHeadAttention MurmurHash3 NGramHashMapping NGramRepeatBlock NhwcConv
    NhwcFusedConv NhwcMaxPool PackedAttention PackedMultiHeadAttention PackedSparseAttentionIndexer
    PackedSparseAttentionIndexerMerge Pad PagedAttention QAttention QEmbedLayerNormalization QGemm
    QLinearAdd QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool
    QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere QMoE
    QOrderedAttention QOrderedGelu QOrderedLayerNormalization QOrderedLongformerAttention
    QOrderedMatMul QuantizeBFP QuantizeLinear QuantizeWithOrder QuickGelu RMSNormRotary Range
    ReduceSumInteger RelativePositionBias RemovePadding RestorePadding Rfft RotaryEmbedding
    RouterGateUpProj SampleOp Sampling ScaledSiLU SkipGroupNorm SkipLayerNormalization
    SkipSimplifiedLayerNormalization Snpe SparseAttention SparseAttentionIndexer
    SparsePagedAttention SparseToDenseMatMul SpeculativePrefixCommit SwiGLU Tokenizer TorchEmbedding
    TransposeMatMul Trilu UnfoldTensor Unique VarlenCausalConvWithState VarlenNGramHashMapping
    WhisperBeamSearch WordConvEmbedding
"""

REVISIONS: Mapping[str, tuple[int, ...]] = {name: (1,) for name in _REVISION_1.split()}
"""Every operator with its revisions, oldest first; none has been revised so far."""
